package ops_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ops"
	"github.com/safeledger/safeledger/internal/payment"
)

func eur(n int64) payment.Money { return payment.Money{AmountMinor: n, Currency: "EUR"} }

// parked is a reversal that waits for a person.
func parked() payment.FollowUpDetail {
	return payment.FollowUpDetail{
		FollowUp: payment.FollowUp{
			ID: followUpID, Kind: payment.Reversal, PaymentID: paymentID, State: payment.Parked, Code: "ACCOUNT_CLOSED",
			Amount: eur(1999), CreatedAt: begun.Add(1112083 * time.Microsecond),
		},
		Caller: "store-17", Outbound: payment.Reference(uuid.MustParse("56772e92-ba52-8aa6-a4ab-3c51b6c6ce30")),
		Attempts: 2, Lookups: 3, ParkReason: "rejected", LastReason: payment.ReasonVerdict,
	}
}

// timeline is a debit that timed out, was found applied, and could not be given back.
func timeline() payment.Timeline {
	p := payment.Payment{
		ID: paymentID, Caller: "store-17", Operation: payment.Debit, Account: "acc-1001", Amount: eur(1999), TillReference: "receipt 4711",
		Metadata: map[string]string{"till": "3"}, State: payment.Declined, Code: payment.WalletTimeout,
		Reference: payment.Reference(uuid.MustParse("36f22440-7ddf-8459-9cbc-f0579d577855")),
		CreatedAt: begun, DecidedAt: begun.Add(1112083 * time.Microsecond),
	}
	call := func(of uuid.UUID, attempt int, after time.Duration, name, outcome string, reason payment.Reason, status int, took time.Duration) payment.TimedCall {
		return payment.TimedCall{OperationID: of, Attempt: attempt, At: begun.Add(after), WalletCall: payment.WalletCall{
			Call: name, Outcome: outcome, Reason: reason, Status: status, Took: took,
		}}
	}
	return payment.Timeline{
		Payment: p, FollowUps: []payment.FollowUpDetail{parked()},
		Calls: []payment.TimedCall{
			call(uuid.Nil, 0, 2*time.Millisecond, "debit", "ambiguous", payment.ReasonTimeout, 0, 800*time.Millisecond),
			call(uuid.Nil, 0, 803*time.Millisecond, "lookup", "not_found", payment.ReasonVerdict, 404, 12345*time.Microsecond),
			call(followUpID, 1, 2*time.Second, "lookup", "applied", payment.ReasonApplied, 200, 8*time.Millisecond),
			call(followUpID, 1, 2010*time.Millisecond, "credit", "rejected", payment.ReasonVerdict, 409, 9*time.Millisecond),
		},
		Notes: []payment.Note{{OperationID: followUpID, At: begun.Add(time.Hour), Operator: "ada", Action: "redrive", Text: "the account is open again"}},
	}
}

func written(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Support reads it to a customer on the telephone: what happened, in order of time,
// the money as people write it, and what is still open.
func TestATimelineReadsFromTopToBottom(t *testing.T) {
	t.Parallel()
	const want = `payment 019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77
reversal#1 019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70

TIME                      OF          WHAT                 
2026-11-29 09:30:00.120Z  debit       claimed by store-17  19.99 EUR, acc-1001, receipt 4711
2026-11-29 09:30:00.122Z  debit       debit ambiguous      timeout, 800ms
2026-11-29 09:30:00.923Z  debit       lookup not_found     verdict, HTTP 404, 12.3ms
2026-11-29 09:30:01.232Z  debit       DECLINED             WALLET_TIMEOUT
2026-11-29 09:30:01.232Z  reversal#1  accepted             19.99 EUR
2026-11-29 09:30:02.120Z  reversal#1  lookup applied       applied, HTTP 200, 8ms, attempt 1
2026-11-29 09:30:02.130Z  reversal#1  credit rejected      verdict, HTTP 409, 9ms, attempt 1
2026-11-29 10:30:00.120Z  reversal#1  redrive by ada       the account is open again
open                      reversal#1  PARKED               rejected
`
	got := written(t, func(w io.Writer) error { return ops.WriteTimeline(w, timeline()) })
	if diff := cmp.Diff(trimmed(want), trimmed(got)); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
}

// trimmed is s without what nobody sees at the ends of its lines.
func trimmed(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// Whoever is woken at night reads this table first.
func TestTheTableOfWhatIsParkedTellsWhyAndWhoseMoney(t *testing.T) {
	t.Parallel()
	const want = `ID                                    KIND      CREATED               AMOUNT     REASON    CODE            LAST     ATTEMPTS  CALLER    PAYMENT
019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70  reversal  2026-11-29T09:30:01Z  19.99 EUR  rejected  ACCOUNT_CLOSED  verdict  2         store-17  019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77
`
	got := written(t, func(w io.Writer) error { return ops.WriteParked(w, []payment.FollowUpDetail{parked()}) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if got := written(t, func(w io.Writer) error { return ops.WriteParked(w, nil) }); got != "nothing is parked\n" {
		t.Errorf("nothing: %q", got)
	}
	if got := written(t, func(w io.Writer) error { return ops.WriteFound(w, payment.Found{}) }); got != "nothing was found\n" {
		t.Errorf("nothing: %q", got)
	}
}

// Whoever takes minor units for whole ones gives back a hundredfold, and with yen
// and dinar by another factor.
func TestPeopleSeeMoneyAsTheyWriteIt(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]payment.Money{
		"19.99 EUR": eur(1999), "0.01 EUR": eur(1), "500 JPY": {AmountMinor: 500, Currency: "JPY"}, "1.234 KWD": {AmountMinor: 1234, Currency: "KWD"},
		"90071992547409.91 EUR": eur(payment.MaxAmountMinor), "7 minor units of XYZ": {AmountMinor: 7, Currency: "XYZ"},
	} {
		f := parked()
		f.Amount = m
		if got := written(t, func(w io.Writer) error { return ops.WriteFollowUp(w, f) }); !strings.Contains(got, "  "+want+"\n") {
			t.Errorf("%+v is not told as %q:\n%s", m, want, got)
		}
	}
}

// A wallet may put anything into its ids. On the terminal of whoever has access to
// production it must be text and nothing else.
func TestATerminalIsSafeFromWhatOthersSent(t *testing.T) {
	t.Parallel()
	p := timeline().Payment
	p.WalletID, p.TillReference = "w\x1b[2J\x1b[H\tx\ny", "bidi \u202e reference"
	for _, got := range []string{
		written(t, func(w io.Writer) error { return ops.WritePayment(w, p) }),
		written(t, func(w io.Writer) error { return ops.WriteFound(w, payment.Found{Payments: []payment.Payment{p}}) }),
		written(t, func(w io.Writer) error { return ops.WriteTimeline(w, payment.Timeline{Payment: p}) }),
	} {
		if strings.ContainsAny(got, "\x1b\t\u202e") {
			t.Errorf("it goes through: %q", got)
		}
		if !strings.Contains(got, `w\x1b[2J`) {
			t.Errorf("it is not shown: %q", got)
		}
	}
}

// A script reads the same over HTTP and from the command, and money in minor units.
func TestProgramsAreToldTheSameEverywhere(t *testing.T) {
	t.Parallel()
	const reversal = `{"id":"019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70","kind":"reversal","status":"PARKED","code":"ACCOUNT_CLOSED","parkReason":"rejected",` +
		`"caller":"store-17","paymentId":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77","amount":1999,"currency":"EUR","outboundKey":"56772e92-ba52-8aa6-a4ab-3c51b6c6ce30",` +
		`"attempts":2,"lookups":3,"lastReason":"verdict","createdAt":"2026-11-29T09:30:01.232117Z"}`
	const debit = `{"id":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77","kind":"debit","state":"DECLINED","code":"WALLET_TIMEOUT","caller":"store-17","account":"acc-1001",` +
		`"amount":1999,"currency":"EUR","reference":"receipt 4711","metadata":{"till":"3"},"outboundKey":"36f22440-7ddf-8459-9cbc-f0579d577855",` +
		`"createdAt":"2026-11-29T09:30:00.120034Z","decidedAt":"2026-11-29T09:30:01.232117Z"}`
	const calls = `[{"attempt":0,"at":"2026-11-29T09:30:00.122034Z","call":"debit","outcome":"ambiguous","reason":"timeout","tookMs":800},` +
		`{"attempt":0,"at":"2026-11-29T09:30:00.923034Z","call":"lookup","outcome":"not_found","reason":"verdict","status":404,"tookMs":12.345},` +
		`{"operationId":"019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70","attempt":1,"at":"2026-11-29T09:30:02.120034Z","call":"lookup","outcome":"applied","reason":"applied","status":200,"tookMs":8},` +
		`{"operationId":"019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70","attempt":1,"at":"2026-11-29T09:30:02.130034Z","call":"credit","outcome":"rejected","reason":"verdict","status":409,"tookMs":9}]`
	const notes = `[{"operationId":"019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70","at":"2026-11-29T10:30:00.120034Z","operator":"ada","action":"redrive","reason":"the account is open again"}]`
	l := &fakeLedger{
		parked: []payment.FollowUpDetail{parked()}, timeline: timeline(), known: true,
		found: payment.Found{Payments: []payment.Payment{timeline().Payment}},
	}
	for path, test := range map[string]struct {
		write func(io.Writer) error
		want  string
	}{
		"/operators/parked":     {func(w io.Writer) error { return ops.ParkedJSON(w, l.parked) }, `{"parked":[` + reversal + `]}`},
		"/operators/find?key=k": {func(w io.Writer) error { return ops.FoundJSON(w, l.found) }, `{"payments":[` + debit + `],"followUps":[]}`},
		"/operators/timeline/" + paymentID.String(): {
			func(w io.Writer) error { return ops.TimelineJSON(w, l.timeline) },
			`{"payment":` + debit + `,"followUps":[` + reversal + `],"calls":` + calls + `,"notes":` + notes + `}`,
		},
	} {
		w := newDesk(t, l).ask(path, "")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
		if diff := cmp.Diff(test.want+"\n", w.Body.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
		if diff := cmp.Diff(w.Body.String(), written(t, test.write)); diff != "" {
			t.Errorf("%s by --json differs (-HTTP +command):\n%s", path, diff)
		}
	}
	// A payout has a timeline without a payment, and lists are never missing.
	payout := payment.Timeline{FollowUps: []payment.FollowUpDetail{parked()}}
	var document map[string]json.RawMessage
	if err := json.Unmarshal([]byte(written(t, func(w io.Writer) error { return ops.TimelineJSON(w, payout) })), &document); err != nil {
		t.Fatal(err)
	}
	if _, there := document["payment"]; there || string(document["calls"]) != "[]" || string(document["notes"]) != "[]" {
		t.Errorf("%s", document)
	}
}
