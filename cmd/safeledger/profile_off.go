//go:build !profile

package main

// profiling does nothing in a normal build.
func profiling() (stop func()) { return func() {} }
