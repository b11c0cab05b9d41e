package ledger

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
)

// numbered is a statement with numbers for its names, as PostgreSQL takes it.
type numbered struct {
	statement string
	names     []string // in the order of the numbers
}

// inNumbers has every statement that was said in this process: they are constants.
var inNumbers sync.Map // statement → numbered

// number writes numbers for the names in the statements of batch. pgx would do it when it
// sends them, and reads each statement from its first letter to the last for that, every
// time: 16 µs of each shared transaction, in which nobody else's can leave.
func number(ctx context.Context, batch *pgx.Batch) error {
	for _, q := range batch.QueuedQueries {
		if len(q.Arguments) != 1 {
			continue
		}
		args, named := q.Arguments[0].(pgx.NamedArgs)
		if !named {
			continue
		}
		n, err := numbersOf(ctx, q.SQL, args)
		if err != nil {
			return err
		}
		values := make([]any, len(n.names))
		for i, name := range n.names {
			var given bool
			if values[i], given = args[name]; !given {
				return fmt.Errorf("the statement names %s, which it is not given", name)
			}
		}
		q.SQL, q.Arguments = n.statement, values
	}
	return nil
}

// numbersOf is statement in numbers. Which name has which number pgx tells where every
// argument is its own name.
func numbersOf(ctx context.Context, statement string, args pgx.NamedArgs) (numbered, error) {
	if known, ok := inNumbers.Load(statement); ok {
		return known.(numbered), nil //nolint:forcetypeassert // nothing else is in there
	}
	self := make(pgx.NamedArgs, len(args))
	for name := range args {
		self[name] = name
	}
	text, order, err := self.RewriteQuery(ctx, nil, statement, nil)
	if err != nil {
		return numbered{}, fmt.Errorf("number the names of a statement: %w", err)
	}
	n := numbered{statement: text, names: make([]string, len(order))}
	for i, name := range order {
		var given bool
		if n.names[i], given = name.(string); !given {
			return numbered{}, fmt.Errorf("argument %d of a statement has no value", i+1)
		}
	}
	inNumbers.Store(statement, n)
	return n, nil
}
