package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/config"
	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ops"
	"github.com/safeledger/safeledger/internal/payment"
)

// opsCommand is for the people who operate the service. It works on the database
// itself, so that it also does where no replica runs; the same is served to callers
// with the scope operator on the admin listener, see internal/ops.
type opsCommand struct {
	JSON    bool          `name:"json" help:"JSON for scripts, amounts in minor units, instead of tables for people."`
	Timeout time.Duration `default:"10s" help:"How long the database may take. A search over a long time needs more."`

	Parked   opsParkedCommand   `cmd:"" help:"What waits for a person, what has waited longest first."`
	Find     opsFindCommand     `cmd:"" help:"Payments and follow-ups, the newest first, by what somebody knows of them."`
	Show     opsShowCommand     `cmd:"" help:"One payment or follow-up."`
	Timeline opsTimelineCommand `cmd:"" help:"All that happened to a payment: claim, wallet calls, decision, follow-ups, notes."`
	Redrive  opsRedriveCommand  `cmd:"" help:"Give what is parked back to the queue, under the same outbound key."`
	Settle   opsSettleCommand   `cmd:"" help:"End a follow-up by hand, as you have found it to be at the wallet."`
}

// AfterApply lets the subcommands have the flags that all of them share.
func (c *opsCommand) AfterApply(k *kong.Context) error { //nolint:unparam // the signature is kong's
	k.Bind(c)
	return nil
}

// on runs do on the ledger. Nothing here decides or recovers a payment, so the
// recovery horizon that a ledger is made with is of no consequence.
func (c *opsCommand) on(p *process, do func(ctx context.Context, l *ledger.Ledger, out io.Writer) error) error {
	const horizon = time.Hour
	cfg, err := config.LoadDatabase()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, c.Timeout)
	defer cancel()
	pool, err := ledger.Connect(ctx, cfg.URL, ledger.Options{MaxConns: 1, Pooler: string(cfg.Pooler), ApplicationName: "safeledger ops"})
	if err != nil {
		return err
	}
	defer pool.Close()
	l, err := ledger.New(pool, ledger.Config{Horizon: horizon})
	if err != nil {
		return err
	}
	// A newer schema that lets this release run holds what it knows, and an unsafe
	// setting is the service's to refuse: neither must keep an operator from looking.
	if err := l.CheckSchema(ctx); err != nil && !errors.Is(err, ledger.ErrSchemaNew) && !errors.Is(err, ledger.ErrNotDurable) {
		return err
	}
	return do(ctx, l, p.out)
}

type opsParkedCommand struct {
	Limit int `default:"${ops_limit}" help:"At most so many."`
}

func (c opsParkedCommand) Run(p *process, all *opsCommand) error {
	if err := ops.CheckLimit(c.Limit); err != nil {
		return err
	}
	return all.on(p, func(ctx context.Context, l *ledger.Ledger, out io.Writer) error {
		parked, err := l.Parked(ctx, c.Limit)
		if err != nil {
			return err
		}
		if all.JSON {
			return ops.ParkedJSON(out, parked)
		}
		return ops.WriteParked(out, parked)
	})
}

type opsFindCommand struct {
	Key       string    `help:"The till's Idempotency-Key."`
	Reference string    `help:"The till's own reference."`
	Account   string    `help:"The account at the wallet."`
	WalletID  string    `name:"wallet-id" help:"The wallet's id of the effect."`
	Amount    int64     `help:"The amount, in minor units."`
	Currency  string    `help:"The currency of the amount."`
	Caller    string    `help:"Whose it is, by the name in CALLERS_FILE."`
	From      time.Time `help:"Made since then, as 2026-11-29T09:30:00Z; a day before --until if not given. Of no consequence to a key."`
	Until     time.Time `help:"Made before then; now if not given."`
	Limit     int       `default:"${ops_limit}" help:"At most so many payments, and follow-ups."`
}

func (c opsFindCommand) Run(p *process, all *opsCommand) error {
	q := payment.Query{
		Caller: c.Caller, TillReference: c.Reference, Account: c.Account, WalletID: c.WalletID,
		AmountMinor: c.Amount, Currency: c.Currency, From: c.From, Until: c.Until, Limit: c.Limit,
	}
	if c.Key != "" {
		key, err := payment.NewKey(c.Key)
		if err != nil {
			return fmt.Errorf("--key %w", err)
		}
		q.Key = key
	}
	if err := ops.CheckQuery(q); err != nil {
		return err
	}
	return all.on(p, func(ctx context.Context, l *ledger.Ledger, out io.Writer) error {
		found, err := l.Find(ctx, q)
		if err != nil {
			return err
		}
		if all.JSON {
			return ops.FoundJSON(out, found)
		}
		return ops.WriteFound(out, found)
	})
}

type opsShowCommand struct {
	ID string `arg:"" help:"The id of a payment or follow-up."`
}

func (c opsShowCommand) Run(p *process, all *opsCommand) error {
	return all.timeline(p, c.ID, func(id uuid.UUID, t payment.Timeline, out io.Writer) error {
		for _, f := range t.FollowUps {
			switch {
			case f.ID != id:
			case all.JSON:
				return ops.FollowUpJSON(out, f)
			default:
				return ops.WriteFollowUp(out, f)
			}
		}
		if all.JSON {
			return ops.PaymentJSON(out, t.Payment)
		}
		if err := ops.WritePayment(out, t.Payment); err != nil || len(t.FollowUps) == 0 {
			return err
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
		return ops.WriteFound(out, payment.Found{FollowUps: t.FollowUps})
	})
}

type opsTimelineCommand struct {
	ID string `arg:"" help:"The id of a payment or of one of its follow-ups."`
}

func (c opsTimelineCommand) Run(p *process, all *opsCommand) error {
	return all.timeline(p, c.ID, func(_ uuid.UUID, t payment.Timeline, out io.Writer) error {
		if all.JSON {
			return ops.TimelineJSON(out, t)
		}
		return ops.WriteTimeline(out, t)
	})
}

// timeline reads what there is of an id and has it written.
func (c *opsCommand) timeline(p *process, text string, write func(uuid.UUID, payment.Timeline, io.Writer) error) error {
	id, err := ops.ParseID(text)
	if err != nil {
		return err
	}
	return c.on(p, func(ctx context.Context, l *ledger.Ledger, out io.Writer) error {
		t, found, err := l.Timeline(ctx, id)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("there is no payment or follow-up %s", id)
		}
		return write(id, t, out)
	})
}

// note is who intervenes and why: it is kept with what was done.
type note struct {
	Operator string `env:"USER" required:"" help:"Who you are. It is kept."`
	Reason   string `required:"" help:"Why. It is kept, and read by whoever asks later."`
}

type opsRedriveCommand struct {
	ID string `arg:"" help:"The id of a follow-up that is parked."`
	note
}

func (c opsRedriveCommand) Run(p *process, all *opsCommand) error {
	return all.intervene(p, c.ID, c.note, func(ctx context.Context, l *ledger.Ledger, id uuid.UUID) (payment.OperatorResult, error) {
		return l.Redrive(ctx, id, c.Operator, c.Reason)
	})
}

type opsSettleCommand struct {
	ID string `arg:"" help:"The id of a follow-up at which no attempt is out."`

	Applied    bool `xor:"found" required:"" help:"The wallet has applied it: it ends SUCCEEDED, and keeps what it reserved."`
	NotApplied bool `xor:"found" required:"" help:"The wallet has not applied it, and will not: it ends REJECTED (a reversal NOT_APPLIED), and gives back what it reserved."`
	note
}

func (c opsSettleCommand) Run(p *process, all *opsCommand) error {
	return all.intervene(p, c.ID, c.note, func(ctx context.Context, l *ledger.Ledger, id uuid.UUID) (payment.OperatorResult, error) {
		return l.SettleByHand(ctx, id, c.Applied, c.Operator, c.Reason)
	})
}

// intervene does what an operator asks for and shows what is there then. What was
// not done is an error, so that a script sees it by the exit code.
func (c *opsCommand) intervene(
	p *process, text string, by note, do func(context.Context, *ledger.Ledger, uuid.UUID) (payment.OperatorResult, error),
) error {
	id, err := ops.ParseID(text)
	if err != nil {
		return err
	}
	if err := ops.CheckReason(by.Reason); err != nil {
		return err
	}
	if by.Operator == "" {
		return errors.New("--operator must not be empty")
	}
	return c.on(p, func(ctx context.Context, l *ledger.Ledger, out io.Writer) error {
		result, err := do(ctx, l, id)
		if err != nil {
			return fmt.Errorf("whether it was done is not known, look at the timeline or do it again: %w", err)
		}
		if why := ops.Refusal(result); why != "" {
			return errors.New("nothing was done: " + why)
		}
		if c.JSON {
			return ops.FollowUpJSON(out, result.FollowUp)
		}
		return ops.WriteFollowUp(out, result.FollowUp)
	})
}
