package main

import (
	"errors"
	"os"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/safeledger/safeledger/internal/config"
	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/telemetry"
)

type migrateCommand struct{}

func (migrateCommand) Run(p *process) error {
	cfg, err := config.LoadDatabase()
	if err != nil {
		return err
	}
	err = ledger.Migrate(p.ctx, cfg.URL, telemetry.NewLogger(os.Stderr, nil))
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		return cfg.Refuse("DATABASE_URL", err)
	}
	return err
}

type configCommand struct {
	Role config.Role `enum:"all,api,worker" default:"all" help:"Whose configuration: ${enum}."`
}

func (c configCommand) Run() error {
	cfg, err := config.Load(c.Role)
	if err != nil {
		return err
	}
	return cfg.Print(os.Stdout)
}
