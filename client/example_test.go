package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/client"
)

// newTill makes the client of a till. It is made once and used for everything; it
// connects to nothing until it is used.
func newTill(token string) (*client.Client, error) {
	return client.New(client.Config{BaseURL: "https://payments.example", Token: token})
}

// pay asks for one payment of one customer. The key was stored with the receipt
// before: after a power cut it is by the key that the payment is found again.
func pay(ctx context.Context, till *client.Client, key string, req client.PaymentRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // the service is told, and decides in time
	defer cancel()
	decision, err := till.Debit(ctx, key, req)
	if unknown, ok := errors.AsType[*client.OutcomeUnknownError](err); ok {
		return "ask for the key " + unknown.Key, nil // see afterALostAnswer
	}
	if inFlight, ok := errors.AsType[*client.InFlightError](err); ok {
		return "ask for the key " + inFlight.Key, nil
	}
	if _, ok := errors.AsType[*client.NotBegunError](err); ok {
		return "nothing was begun, press again", nil // with the same key
	}
	if err != nil {
		return "", err // a *client.Problem: the request is wrong, or this till may not ask it
	}
	switch {
	case decision.Approved():
		return "hand over the goods", nil
	case decision.Retryable:
		return "the wallet did not answer, try again with a new key", nil
	}
	return "declined: " + decision.Code, nil
}

// afterALostAnswer finds out what became of a key, for a customer who is still there.
func afterALostAnswer(ctx context.Context, till *client.Client, key string, req client.PaymentRequest) (string, error) {
	payment, seen, err := till.Reconcile(ctx, client.KindDebit, key)
	if err != nil {
		return "", err // ask again, or cancel the key
	}
	if !seen {
		// It may still be on its way. The same request with the same key is the same
		// payment, whichever of them arrives.
		return pay(ctx, till, key, req)
	}
	if payment.Approved() {
		return "hand over the goods", nil
	}
	return "declined: " + payment.Code, nil
}

// giveUp undoes whatever a key did, for a customer who is gone. It is repeated until
// it is answered; until then the key stays in the till's list of things to do.
func giveUp(ctx context.Context, till *client.Client, key string, req client.PaymentRequest) (string, error) {
	cancellation, err := till.Cancel(ctx, client.KindDebit, key, &req)
	if err != nil {
		return "", err
	}
	if cancellation.ReversalID == uuid.Nil {
		return "nothing was taken, and nothing will be", nil
	}
	return "whatever was taken is on its way back", nil
}

// tryAgain makes further attempts after a decline that may be tried again. Each has a
// new key, which remember stores before it is used.
func tryAgain(ctx context.Context, till *client.Client, declined client.Decision, req client.PaymentRequest, remember func(key string) error) (client.Decision, error) {
	return till.DebitAgain(ctx, declined, req, client.Again{Attempts: 2, Key: func(int) (string, error) {
		key, err := client.NewKey()
		if err != nil {
			return "", err
		}
		return key, remember(key)
	}})
}

// refund gives back some of a debit. It is accepted here and done later, and only
// the follow-up says when.
func refund(ctx context.Context, till *client.Client, key string, debit client.Payment, amountMinor int64) (client.FollowUp, error) {
	accepted, err := till.Credit(ctx, key, client.CreditRequest{
		Account: debit.Account, AmountMinor: amountMinor, Currency: debit.Currency, DebitID: debit.ID,
	})
	if err != nil {
		return client.FollowUp{}, err // unknown: the same call again, with the same key
	}
	now, _, err := till.FollowUp(ctx, accepted.ID) // Pending, until it is Succeeded or Rejected
	return now, err
}

// fuel holds an amount before the pump is opened, and captures what was pumped.
func fuel(ctx context.Context, till *client.Client, holdKey, captureKey string, most client.PaymentRequest, pump func() int64) (client.FollowUp, error) {
	hold, err := till.Hold(ctx, holdKey, most)
	if err != nil || !hold.Approved() {
		return client.FollowUp{}, errors.Join(errors.New("the pump stays closed"), err)
	}
	pumped := pump()
	if pumped == 0 {
		return till.Release(ctx, captureKey, hold.ID)
	}
	return till.Capture(ctx, captureKey, hold.ID, pumped) // the rest is given back
}

// demo is a till of a SafeLedger that runs in this process, with a simulated wallet:
// the account's name says how the wallet behaves.
func demo() (*client.Client, func()) {
	w, err := open(onLoopback, 512)
	if err != nil {
		panic(err)
	}
	till, err := client.New(w.config())
	if err != nil {
		panic(err)
	}
	return till, w.close
}

func ExampleNew() {
	_, err := newTill("")
	fmt.Println(err)
	// Output: client: Token must be visible ASCII characters, at least one
}

func ExampleClient_Debit() {
	till, stop := demo()
	defer stop()
	ctx := context.Background()
	for _, account := range []string{"ALICE", "POOR-BOB", "LOCKED-CAROL", "HANG-DAVE"} {
		key, err := client.NewKey()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(pay(ctx, till, key, client.PaymentRequest{Account: account, AmountMinor: 1250, Currency: "EUR"}))
	}
	// Output:
	// hand over the goods <nil>
	// declined: INSUFFICIENT_FUNDS <nil>
	// declined: ACCOUNT_LOCKED <nil>
	// the wallet did not answer, try again with a new key <nil>
}

func ExampleClient_Reconcile() {
	till, stop := demo()
	defer stop()
	ctx := context.Background()
	req := client.PaymentRequest{Account: "ALICE", AmountMinor: 1250, Currency: "EUR"}

	// It never arrived: it is sent, now.
	fmt.Println(afterALostAnswer(ctx, till, "receipt-4711", req))
	// It had arrived, and only its answer got lost.
	fmt.Println(afterALostAnswer(ctx, till, "receipt-4711", req))
	// Output:
	// hand over the goods <nil>
	// hand over the goods <nil>
}

func ExampleClient_Cancel() {
	till, stop := demo()
	defer stop()
	ctx := context.Background()
	req := client.PaymentRequest{Account: "ALICE", AmountMinor: 1250, Currency: "EUR"}

	fmt.Println(pay(ctx, till, "receipt-4711", req))
	fmt.Println(giveUp(ctx, till, "receipt-4711", req))
	// The same request, late: no goods for it.
	_, err := till.Debit(ctx, "receipt-4711", req)
	problem, _ := errors.AsType[*client.Problem](err)
	fmt.Println(problem.Status, problem.Code)
	// Output:
	// hand over the goods <nil>
	// whatever was taken is on its way back <nil>
	// 409 PAYMENT_CANCELLED
}

func ExampleClient_DebitAgain() {
	till, stop := demo()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	req := client.PaymentRequest{Account: "DOWN-ERIN", AmountMinor: 1250, Currency: "EUR"}

	first, err := till.Debit(ctx, "receipt-4711", req)
	fmt.Println(first.Code, first.Retryable, err)
	keys := 0
	last, err := tryAgain(ctx, till, first, req, func(string) error { keys++; return nil })
	fmt.Println(last.Code, last.Key != first.Key, keys > 0, err)
	// Output:
	// WALLET_UNAVAILABLE true <nil>
	// WALLET_UNAVAILABLE true true <nil>
}

func ExampleClient_Credit() {
	till, stop := demo()
	defer stop()
	ctx := context.Background()
	fmt.Println(pay(ctx, till, "receipt-4711", client.PaymentRequest{Account: "ALICE", AmountMinor: 1250, Currency: "EUR"}))
	debit, _, err := till.Reconcile(ctx, client.KindDebit, "receipt-4711")
	if err != nil {
		fmt.Println(err)
		return
	}
	given, err := refund(ctx, till, "refund-of-4711", debit, 250)
	fmt.Println(given.Kind, given.AmountMinor, given.Status, err)
	_, err = refund(ctx, till, "another-refund-of-4711", debit, 1001)
	problem, _ := errors.AsType[*client.Problem](err)
	fmt.Println(problem.Status, problem.Code)
	// Output:
	// hand over the goods <nil>
	// credit 250 PENDING <nil>
	// 422 AMOUNT_EXCEEDS_DEBIT
}

func ExampleClient_Hold() {
	till, stop := demo()
	defer stop()
	ctx := context.Background()
	most := client.PaymentRequest{Account: "ALICE", AmountMinor: 15000, Currency: "EUR"}
	captured, err := fuel(ctx, till, "pump-3-hold", "pump-3-capture", most, func() int64 { return 4217 })
	fmt.Println(captured.Kind, captured.AmountMinor, captured.Status, err)
	_, err = fuel(ctx, till, "pump-4-hold", "pump-4-capture", client.PaymentRequest{Account: "POOR-BOB", AmountMinor: 15000, Currency: "EUR"}, nil)
	fmt.Println(err)
	// Output:
	// capture 4217 PENDING <nil>
	// the pump stays closed
}
