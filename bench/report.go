package main

import "io"

type reportCommand struct {
	Results []string `arg:"" help:"The folders of the results."`
}

func (reportCommand) Run(*order) error { return nil }

func report(all []*results, dir string, docs bool, out io.Writer) error { return nil }
