package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/payment"
)

// deciding is a service whose decider gives this result.
func deciding(t *testing.T, result func(payment.Request) (decision.Result, error)) *service {
	return newService(t, func(cfg *api.Config) {
		cfg.Decider = decideFunc(func(_ context.Context, req payment.Request, _ budget.Deadline) (decision.Result, error) {
			return result(req)
		})
	})
}

// What the till hears of an approval is what is stored, in the contract's words:
// goods are handed over on it.
func TestAnApprovalIs201WithTheStoredPayment(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for _, test := range []struct{ path, body, want string }{
		{"/debits", goodBody, `{"id":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77","kind":"debit","decision":"APPROVED","account":"acc-1001","amount":1999,"currency":"EUR","walletId":"w-58213","createdAt":"2026-11-29T09:30:00.120034Z","decidedAt":"2026-11-29T09:30:00.200000Z"}` + "\n"},
		{"/holds", `{"account":"a","amount":1,"currency":"JPY","reference":"R&D <ü>","metadata":{"z":"1","a":""}}`, `{"id":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77","kind":"hold","decision":"APPROVED","account":"a","amount":1,"currency":"JPY","reference":"R&D <ü>","metadata":{"a":"","z":"1"},"walletId":"w-58213","createdAt":"2026-11-29T09:30:00.120034Z","decidedAt":"2026-11-29T09:30:00.200000Z"}` + "\n"},
		{"/debits", `{"account":"a","amount":1,"currency":"JPY","metadata":{}}`, `{"id":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77","kind":"debit","decision":"APPROVED","account":"a","amount":1,"currency":"JPY","metadata":{},"walletId":"w-58213","createdAt":"2026-11-29T09:30:00.120034Z","decidedAt":"2026-11-29T09:30:00.200000Z"}` + "\n"},
	} {
		w := s.send(sent{path: test.path, body: test.body})
		if w.Code != http.StatusCreated {
			t.Errorf("status = %d, want 201", w.Code)
		}
		if diff := cmp.Diff(test.want, w.Body.String()); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		for name, want := range map[string]string{
			"Location":             "/payments/019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77",
			"Content-Type":         "application/json",
			"Cache-Control":        "no-store",
			"Idempotency-Replayed": "",
			"Retry-After":          "",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
	}
}

// A decline that looks like an outage is tried again for ever; an outage that
// looks like a decline sends a customer away. 424 and Retry-After are for
// exactly the two codes with which the wallet did not decide.
func TestADeclineIs402Or424ByItsCode(t *testing.T) {
	t.Parallel()
	for code, want := range map[payment.Code]struct {
		status                  int
		retryAfter, problemType string
	}{
		payment.WalletUnavailable: {424, "2", "WALLET_UNAVAILABLE"},
		payment.WalletTimeout:     {424, "2", "WALLET_TIMEOUT"},
		payment.WalletRejected:    {402, "", "WALLET_REJECTED"},
		payment.Cancelled:         {402, "", "CANCELLED"},
		"INSUFFICIENT_FUNDS":      {402, "", "DECLINED"},
		"ACCOUNT_NOT_FOUND":       {402, "", "DECLINED"},
		"X":                       {402, "", "DECLINED"},
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			s := deciding(t, func(req payment.Request) (decision.Result, error) {
				return decision.Result{Status: decision.Decided, Payment: declined(req, code)}, nil
			})
			w := s.send(sent{path: "/holds"})
			document := refusedWith(t, w, want.status, string(code))
			if got := w.Header().Get("Retry-After"); got != want.retryAfter {
				t.Errorf("Retry-After = %q, want %q", got, want.retryAfter)
			}
			delete(document, "title")
			delete(document, "detail")
			if diff := cmp.Diff(map[string]any{
				"type": "/openapi.yaml#/x-problems/" + want.problemType, "status": float64(want.status), "code": string(code),
				"id": paymentID.String(), "kind": "hold", "decision": "DECLINED", "retryable": want.status == 424,
			}, document); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"decision hold DECLINED " + string(code)}, s.seen.list()); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
		})
	}
}

// A till that lost its answer must get the very same one again, and be able to
// tell that it is one (field reports A18, A19).
func TestAReplayIsTheFirstAnswerAgain(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]func(payment.Request) payment.Payment{
		"approved": approved,
		"declined": func(r payment.Request) payment.Payment { return declined(r, "INSUFFICIENT_FUNDS") },
		"timeout":  func(r payment.Request) payment.Payment { return declined(r, payment.WalletTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := decision.Decided
			s := deciding(t, func(req payment.Request) (decision.Result, error) {
				p := stored(req)
				if status == decision.Replayed {
					// As another replica reads it: in another zone, with what happened since.
					p.CreatedAt, p.DecidedAt = p.CreatedAt.In(time.UTC), p.DecidedAt.In(time.FixedZone("", -7*3600))
					p.FollowUps = []payment.FollowUp{{ID: uuid.New(), Kind: payment.Reversal, State: payment.Pending}}
				}
				return decision.Result{Status: status, Payment: p}, nil
			})
			body := `{"account":"acc-1001","amount":1999,"currency":"EUR","reference":"r","metadata":{"b":"2","a":"1"}}`
			first := s.send(sent{body: body})
			status = decision.Replayed
			// In another order of members: the same request (field report A15).
			again := s.send(sent{body: `{"metadata":{"a":"1","b":"2"},"reference":"r", "currency":"EUR","amount":1999,"account":"acc-1001"}`})

			if first.Code != again.Code {
				t.Errorf("status = %d, then %d", first.Code, again.Code)
			}
			if diff := cmp.Diff(first.Body.String(), again.Body.String()); diff != "" {
				t.Errorf("the replay differs (-first +replay):\n%s", diff)
			}
			if got := again.Header().Get("Idempotency-Replayed"); got != "true" {
				t.Errorf("Idempotency-Replayed = %q, want true", got)
			}
			if got := first.Header().Get("Idempotency-Replayed"); got != "" {
				t.Errorf("Idempotency-Replayed = %q on the first answer", got)
			}
			again.Header().Del("Idempotency-Replayed")
			if diff := cmp.Diff(first.Header(), again.Header()); diff != "" {
				t.Errorf("the replay's fields differ (-first +replay):\n%s", diff)
			}
			requests := s.requests()
			if requests[0].Fingerprint() != requests[1].Fingerprint() {
				t.Error("another order of members gave another fingerprint")
			}
			if got := s.seen.list(); got[len(got)-1] != "replay debit" {
				t.Errorf("observed %q", got)
			}
		})
	}
}

// A duplicate must neither wait nor look like a decision, and a key that was
// used for something else must never be answered with that other thing.
func TestAKeyThatIsInUseIsAConflict(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/debits", "/holds"} {
		s := deciding(t, func(payment.Request) (decision.Result, error) {
			return decision.Result{Status: decision.InFlight}, nil
		})
		w := s.send(sent{path: path})
		refusedWith(t, w, 409, "REQUEST_IN_FLIGHT")
		if got := w.Header().Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After = %q, want 1", got)
		}
		kind := strings.TrimSuffix(path[1:], "s")
		if diff := cmp.Diff([]string{"conflict " + kind + " in_flight"}, s.seen.list()); diff != "" {
			t.Errorf("observed (-want +got):\n%s", diff)
		}
	}
}

// A key that was used for something else is told so in the same words on every
// route that takes a key: a till handles it once (field report A9).
func TestAKeyThatWasUsedForSomethingElseIsToldSoOnEveryRoute(t *testing.T) {
	t.Parallel()
	calls := followUpCalls()
	calls[payment.Debit], calls[payment.Hold] = sent{path: "/debits"}, sent{path: "/holds"}
	var problem string
	for kind, q := range calls {
		s := deciding(t, func(payment.Request) (decision.Result, error) {
			return decision.Result{Status: decision.Mismatch}, nil
		})
		s.ledger.accept = func(context.Context, payment.FollowUpRequest) (payment.Acceptance, error) {
			return payment.Acceptance{Status: payment.AcceptanceMismatch}, nil
		}
		w := s.send(q)
		refusedWith(t, w, 422, "IDEMPOTENCY_KEY_REUSED")
		if problem == "" {
			problem = w.Body.String()
		}
		if diff := cmp.Diff(problem, w.Body.String()); diff != "" {
			t.Errorf("%s tells it otherwise (-other +got):\n%s", kind, diff)
		}
		if diff := cmp.Diff([]string{"conflict " + string(kind) + " mismatch"}, s.seen.list()); diff != "" {
			t.Errorf("observed (-want +got):\n%s", diff)
		}
	}
}

// When our own storage fails nobody knows what is stored. The answer must not
// look like the gate's, or clients in between send the payment a second time,
// and it must not tell the world about our insides.
func TestAnUnknownOutcomeIs503WithoutRetryAfter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result func(payment.Request) (decision.Result, error)
		want   []string // of what is observed: only behind a claim may there be money at the wallet
	}{
		"claim failed": {
			func(payment.Request) (decision.Result, error) { return decision.Result{}, errStorage },
			[]string{"unknown debit"},
		},
		"store failed": {
			func(req payment.Request) (decision.Result, error) {
				p := approved(req)
				p.State, p.WalletID = payment.InFlight, ""
				return decision.Result{Payment: p}, errStorage
			},
			[]string{"unknown debit", "not stored debit"},
		},
		"an undecided payment for an answer": {
			func(req payment.Request) (decision.Result, error) {
				p := approved(req)
				p.State = payment.InFlight
				return decision.Result{Status: decision.Decided, Payment: p}, nil
			},
			[]string{"unknown debit"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := deciding(t, c.result)
			w := s.send(sent{})
			refusedWith(t, w, 503, "OUTCOME_UNKNOWN")
			if values, there := w.Header()["Retry-After"]; there {
				t.Errorf("Retry-After = %q", values)
			}
			if strings.Contains(w.Body.String(), "secret internals") {
				t.Error("the answer tells the internal cause")
			}
			if diff := cmp.Diff(c.want, s.seen.list()); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
			if !strings.Contains(s.log.String(), `"level":"ERROR"`) {
				t.Errorf("no error was logged: %s", s.log)
			}
		})
	}
}

// A bug must not look like a refusal of the gate: the handler ran, and a 503
// with Retry-After would have the payment sent again by anything in between
// (field report B5).
func TestAPanicIs500WithoutRetryAfter(t *testing.T) {
	t.Parallel()
	s := newService(t, func(cfg *api.Config) {
		cfg.Decider = decideFunc(func(context.Context, payment.Request, budget.Deadline) (decision.Result, error) {
			panic("secret internals")
		})
		cfg.Ledger = readFunc(func(context.Context, string, string) (payment.Payment, bool, error) {
			panic("secret internals")
		})
	})
	for _, q := range []sent{{}, {path: "/holds"}, {method: http.MethodGet, path: "/payments/" + paymentID.String()}} {
		w := s.send(q)
		refusedWith(t, w, 500, "INTERNAL")
		if values, there := w.Header()["Retry-After"]; there {
			t.Errorf("Retry-After = %q", values)
		}
		if strings.Contains(w.Body.String(), "secret internals") {
			t.Error("the answer tells the internal cause")
		}
	}
	if !strings.Contains(s.log.String(), "secret internals") {
		t.Error("the log does not tell the cause")
	}
	if diff := cmp.Diff([]string{"unknown debit", "unknown hold"}, s.seen.list()); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}

	// A result that is none is a bug too.
	s = deciding(t, func(payment.Request) (decision.Result, error) { return decision.Result{}, nil })
	refusedWith(t, s.send(sent{}), 500, "INTERNAL")
	if diff := cmp.Diff([]string{"unknown debit"}, s.seen.list()); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
}

// A till that hangs up has still asked: what was claimed must be decided, or the
// customer's money moves and nobody writes down what happened.
func TestATillThatHangsUpDoesNotCancelTheDecision(t *testing.T) {
	t.Parallel()
	ctx, hangUp := context.WithCancel(t.Context())
	s := newService(t, func(cfg *api.Config) {
		cfg.Decider = decideFunc(func(ctx context.Context, req payment.Request, d budget.Deadline) (decision.Result, error) {
			hangUp()
			if err := ctx.Err(); err != nil {
				t.Errorf("the decision's context ended with the till's: %v", err)
			}
			return approve(ctx, req, d)
		})
	})
	s.bare.ServeHTTP(discard{http.Header{}}, sent{}.request().WithContext(ctx))
	if diff := cmp.Diff([]string{"decision debit APPROVED "}, s.seen.list()); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
}

// discard is a ResponseWriter whose till is gone.
type discard struct{ header http.Header }

func (d discard) Header() http.Header     { return d.header }
func (discard) Write([]byte) (int, error) { return 0, http.ErrHandlerTimeout }
func (discard) WriteHeader(int)           {}

// A till that lost its answer asks by id or by key. It must see what was decided
// and what became of it, as it stands, and never another till's payment.
func TestAGetShowsTheDecidedPaymentAndWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	req := payment.Request{Operation: payment.Debit, Account: "a", Amount: payment.Money{AmountMinor: 5, Currency: "EUR"}, TillReference: "r"}
	reversal := payment.FollowUp{
		ID: uuid.MustParse("019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70"), Kind: payment.Reversal, PaymentID: paymentID,
		State: payment.Pending, CreatedAt: decidedAt,
	}
	reversal.Amount = payment.Money{AmountMinor: 5, Currency: "EUR"}
	done := reversal
	done.Amount = payment.Money{}
	done.Kind, done.State, done.Code, done.EndedAt = payment.Credit, payment.Refused, "ACCOUNT_CLOSED", decidedAt.Add(time.Second)
	with := func(p payment.Payment, followUps ...payment.FollowUp) payment.Payment {
		p.FollowUps = followUps
		return p
	}
	tombstone := declined(payment.Request{Operation: payment.Hold}, payment.Cancelled)
	const common = `"account":"a","amount":5,"currency":"EUR","reference":"r",`
	const times = `"createdAt":"2026-11-29T09:30:00.120034Z","decidedAt":"2026-11-29T09:30:00.200000Z",`

	for name, test := range map[string]struct {
		stored payment.Payment
		want   string
	}{
		"approved": {approved(req), `{"id":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77","kind":"debit","decision":"APPROVED",` + common + `"walletId":"w-58213",` + times + `"followUps":[]}`},
		"timed out, with its reversal": {
			with(declined(req, payment.WalletTimeout), reversal, done),
			`{"id":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77","kind":"debit","decision":"DECLINED","code":"WALLET_TIMEOUT",` + common + times +
				`"followUps":[{"id":"019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70","kind":"reversal","status":"PENDING","amount":5,"currency":"EUR","paymentId":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77","createdAt":"2026-11-29T09:30:00.200000Z"},` +
				`{"id":"019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70","kind":"credit","status":"REJECTED","code":"ACCOUNT_CLOSED","paymentId":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77","createdAt":"2026-11-29T09:30:00.200000Z","endedAt":"2026-11-29T09:30:01.200000Z"}]}`,
		},
		"cancelled before it was ever seen": {tombstone, `{"id":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77","kind":"hold","decision":"DECLINED","code":"CANCELLED",` + times + `"followUps":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			s := newService(t, func(cfg *api.Config) {
				cfg.Ledger = readFunc(func(ctx context.Context, caller, what string) (payment.Payment, bool, error) {
					if _, bounded := ctx.Deadline(); !bounded {
						t.Error("a read without a deadline")
					}
					asked = append(asked, caller+" "+what)
					return test.stored, true, nil
				})
			})
			for _, path := range []string{"/payments/" + paymentID.String(), "/payments/by-key/hold/" + goodKey} {
				w := s.send(sent{method: http.MethodGet, path: path, token: otherToken})
				if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
					t.Errorf("status %d, Content-Type %q", w.Code, w.Header().Get("Content-Type"))
				}
				if diff := cmp.Diff(test.want+"\n", w.Body.String()); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff([]string{"store-18 " + paymentID.String(), "store-18 hold " + goodKey}, asked); diff != "" {
				t.Errorf("asked of the ledger (-want +got):\n%s", diff)
			}
		})
	}
}

// "Not decided yet", "not there" and "cannot be read now" ask for three
// different things of a till, and only the first is worth waiting for.
func TestAGetThatFindsNoDecisionSaysWhy(t *testing.T) {
	t.Parallel()
	paths := []string{"/payments/" + paymentID.String(), "/payments/by-key/debit/" + goodKey}
	for name, test := range map[string]struct {
		find       readFunc
		status     int
		code       string
		retryAfter string
	}{
		"in flight": {func(context.Context, string, string) (payment.Payment, bool, error) {
			return payment.Payment{ID: paymentID, State: payment.InFlight}, true, nil
		}, 404, "PAYMENT_NOT_YET_DECIDED", "1"},
		"not there": {func(context.Context, string, string) (payment.Payment, bool, error) {
			return payment.Payment{}, false, nil
		}, 404, "PAYMENT_NOT_FOUND", ""},
		"storage failed": {func(context.Context, string, string) (payment.Payment, bool, error) {
			return payment.Payment{}, false, errStorage
		}, 503, "STORAGE_UNAVAILABLE", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, func(cfg *api.Config) { cfg.Ledger = test.find })
			for _, path := range paths {
				w := s.send(sent{method: http.MethodGet, path: path})
				refusedWith(t, w, test.status, test.code)
				if got := w.Header().Get("Retry-After"); got != test.retryAfter {
					t.Errorf("Retry-After = %q, want %q", got, test.retryAfter)
				}
				refusedWith(t, s.send(sent{method: http.MethodGet, path: path, header: http.Header{"Accept": {"image/png"}}}), 406, "NOT_ACCEPTABLE")
			}
			if test.status == 503 && !strings.Contains(s.log.String(), errStorage.Error()) {
				t.Error("the cause was not logged")
			}
		})
	}
	t.Run("no id of ours", func(t *testing.T) {
		t.Parallel()
		s := newService(t, func(cfg *api.Config) {
			cfg.Ledger = readFunc(func(context.Context, string, string) (payment.Payment, bool, error) {
				t.Error("the ledger was asked")
				return payment.Payment{}, false, nil
			})
		})
		for _, id := range []string{"1", "abc", strings.ReplaceAll(paymentID.String(), "-", ""), "%7B" + paymentID.String() + "%7D", "urn:uuid:" + paymentID.String(), paymentID.String() + "%00"} {
			refusedWith(t, s.send(sent{method: http.MethodGet, path: "/payments/" + id}), 404, "PAYMENT_NOT_FOUND")
		}
		refusedWith(t, s.send(sent{method: http.MethodGet, path: "/payments/by-key/credit/k"}), 404, "NOT_FOUND")
		refusedWith(t, s.send(sent{method: http.MethodGet, path: "/payments/by-key/Debit/k"}), 404, "NOT_FOUND")
	})
}

// Whatever a till may use as a key it must be able to ask for, or it can never
// find out about a payment whose answer got lost (field report A26).
func TestEveryKeyCanBeAskedForInAPath(t *testing.T) {
	t.Parallel()
	var every strings.Builder
	for c := byte('!'); c <= '~'; c++ {
		every.WriteByte(c)
	}
	keys := []string{
		goodKey, "a/b", "a%2Fb", "%", "%25", "%41", "100%", "a+b", "a?b", "a#b", "a;b", "a&b=c", `"quoted"`, `\`, ".", "..", "../..",
		"/", "//", "by-key", "~", "{key}", "*", every.String(), strings.Repeat("%", 255), strings.Repeat("/", 255),
	}
	for c := byte('!'); c <= '~'; c++ {
		keys = append(keys, string(c))
	}
	var asked string
	s := newService(t, func(cfg *api.Config) {
		cfg.Ledger = readFunc(func(_ context.Context, _, what string) (payment.Payment, bool, error) {
			asked = what
			return payment.Payment{}, false, nil
		})
	})
	s.ledger.operation = func(_ context.Context, _, what string) (payment.FollowUp, bool, error) {
		asked = what
		return payment.FollowUp{}, false, nil
	}
	s.ledger.cancel = func(_ context.Context, op payment.Operation, key payment.Key) (payment.Cancellation, error) {
		asked = string(op) + " " + string(key)
		return payment.Cancellation{Status: payment.CancelTooLate}, nil
	}
	routes := []struct {
		method, before, after string
		status                int
		code                  string
	}{
		{http.MethodGet, "/payments/by-key/debit/", "", 404, "PAYMENT_NOT_FOUND"},
		{http.MethodGet, "/operations/by-key/credit/", "", 404, "OPERATION_NOT_FOUND"},
		{http.MethodPost, "/payments/by-key/hold/", "/cancel", 409, "HOLD_ALREADY_CAPTURED"},
	}
	for _, route := range routes {
		operation := strings.Split(route.before, "/")[3]
		for _, key := range keys {
			var all strings.Builder // every character, as a careful client may do
			for _, c := range []byte(key) {
				fmt.Fprintf(&all, "%%%02x", c)
			}
			spellings := []string{all.String()}
			if usual := url.PathEscape(key); usual != "." && usual != ".." {
				spellings = append(spellings, usual)
			}
			for _, spelling := range spellings {
				asked = ""
				q := sent{method: route.method, path: route.before + spelling + route.after, noBody: true}
				refusedWith(t, s.send(q), route.status, route.code)
				if asked != operation+" "+key {
					t.Errorf("%s asks for %q, want the key %q", q.path, asked, key)
				}
			}
		}
		for _, spelling := range []string{strings.Repeat("k", 256), "%20", "a%20b", "%00", "%7F", "%C3%BC", "a%0Ab"} {
			asked = ""
			q := sent{method: route.method, path: route.before + spelling + route.after, noBody: true}
			refusedWith(t, s.send(q), 400, "INVALID_IDEMPOTENCY_KEY")
			if asked != "" {
				t.Errorf("the ledger was asked for %q", asked)
			}
		}
	}
}

// The log is read by many and kept for long: an engineer must be able to follow
// a payment by it, and nobody may find in it what belongs to the customer or
// opens a door.
func TestTheLogLineTellsTheDecisionAndNoSecret(t *testing.T) {
	t.Parallel()
	s := deciding(t, func(req payment.Request) (decision.Result, error) {
		return decision.Result{
			Status: decision.Decided, Payment: declined(req, payment.WalletTimeout),
			Steps: decision.Steps{
				Claim: 1500 * time.Microsecond, Call: 800 * time.Millisecond, Lookup: 12 * time.Millisecond, Store: 2 * time.Millisecond,
				Outcome:  payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonTimeout},
				Evidence: payment.Evidence{Finding: payment.NotFound},
			},
		}, nil
	})
	s.send(sent{
		key:  "secret-key-1234",
		body: `{"account":"secret-account","amount":123456789,"currency":"EUR","reference":"secret-reference","metadata":{"secret-name":"secret-value"}}`,
	})
	var line map[string]any
	if err := json.Unmarshal([]byte(s.log.String()), &line); err != nil {
		t.Fatalf("want one line of JSON: %v\n%s", err, s.log)
	}
	for _, secret := range []string{"secret", "123456789", tillToken} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log holds %q: %s", secret, s.log)
		}
	}
	for _, name := range []string{"total_ms", "left_ms"} {
		if _, ok := line[name].(float64); !ok {
			t.Errorf("%s = %v", name, line[name])
		}
		delete(line, name)
	}
	delete(line, "time")
	if diff := cmp.Diff(map[string]any{
		"level": "INFO", "msg": "payment decided",
		"id": paymentID.String(), "operation": "debit", "caller": "store-17", "decision": "DECLINED", "code": "WALLET_TIMEOUT",
		"replayed": false, "status": 424.0, "outcome": "ambiguous", "reason": "timeout", "evidence": "not_found",
		"claim_ms": 2.0, "call_ms": 800.0, "lookup_ms": 12.0, "store_ms": 2.0,
	}, line); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

// A metric whose label a till can choose grows until the metrics' server dies
// (field report E7): whatever is asked for, the observer hears of operations,
// states and codes only.
func TestNothingThatATillChoosesReachesTheObserver(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for i := range 300 {
		s.send(sent{method: http.MethodGet, path: fmt.Sprintf("/random/%d", i)})
		s.send(sent{method: http.MethodGet, path: fmt.Sprintf("/payments/by-key/debit/key-%d", i)})
		s.send(sent{method: fmt.Sprintf("M%d", i)})
		s.send(sent{path: fmt.Sprintf("/payments/by-key/debit/key-%d/cancel", i), noBody: true})
		s.send(sent{path: fmt.Sprintf("/holds/%s/capture", uuid.New()), key: fmt.Sprintf("key-%d", i), body: fmt.Sprintf(`{"amount":%d}`, i+1)})
		s.send(sent{key: fmt.Sprintf("key-%d", i), body: fmt.Sprintf(`{"account":"acc-%d","amount":%d,"currency":"EUR"}`, i, i+1)})
	}
	kinds := map[string]bool{}
	for _, event := range s.seen.list() {
		kinds[event] = true
	}
	if diff := cmp.Diff(map[string]bool{"decision debit APPROVED ": true, "cancelled debit": true, "accepted capture": true}, kinds); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
}
