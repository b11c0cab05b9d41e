package schedules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// till does the acts of one line of the plan, one after the other.
type till struct {
	w       *world
	n       int
	client  *http.Client
	closers []func()
}

func (w *world) newTill(n int) *till {
	// One connection pool for each process: a till that is sent to a replica which was
	// started again must connect anew.
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			for _, r := range w.replicas {
				for _, p := range r.processes() {
					if p.host() == host {
						return p.tills.DialContext(ctx, network, address)
					}
				}
			}
			return nil, errors.New("no such replica: " + host)
		},
		DisableCompression: true,
	}
	return &till{w: w, n: n, client: &http.Client{Transport: transport}, closers: []func(){transport.CloseIdleConnections}}
}

func (p *process) host() string { return fmt.Sprintf("process-%d.test", p.n) }

func (t *till) close() {
	for _, c := range t.closers {
		c()
	}
}

// work does all acts of the plan.
func (w *world) work() *sync.WaitGroup {
	var all sync.WaitGroup
	for n, acts := range w.plan.Tills {
		all.Go(func() {
			t := w.newTill(n)
			defer t.close()
			time.Sleep(time.Duration(1+3*n) * time.Microsecond) // not in one instant with another
			for _, a := range acts {
				time.Sleep(a.Wait)
				t.perform(a)
			}
		})
	}
	return &all
}

// perform does an act, or the many that are in one.
func (t *till) perform(a act) {
	if bursts[a.Deed] == 0 {
		t.do(a)
		return
	}
	var all sync.WaitGroup
	for n := range bursts[a.Deed] {
		one := a
		one.Key, one.Deed, one.Second, one.Amount, one.HangUp = a.Key+n, pay, 0, whole, 0
		if a.Deed == payoutBurst {
			one.Deed = payout
		}
		all.Go(func() {
			time.Sleep(time.Duration(n)*11*ms + time.Duration(n)*time.Microsecond)
			t.do(one)
		})
	}
	all.Wait()
}

// do does one act.
func (t *till) do(a act) *exchange {
	w := t.w
	i, k := w.plan.key(a)
	e := &exchange{till: t.n, act: a, keyOf: i, method: http.MethodPost, on: w.replicas[a.Replica%len(w.replicas)].present()}
	payment, known := w.id(i)
	byKey := "/payments/by-key/" + k.operation() + "/" + k.name(i)
	followsUp := a.Deed == capture || a.Deed == release || a.Deed == credit
	switch {
	case a.Second == 0: // now and then what is there, and what can be done with it, does not matter
	case followsUp && !known:
		a.Deed = pay
	case followsUp && a.Deed != credit && !k.Hold:
		a.Deed = credit
	}
	e.act.Deed = a.Deed
	amount := k.Amount
	switch a.Amount {
	case whole, misplace:
	case some:
		amount = 300
	case tooMuch:
		amount = k.Amount + 1
	}
	switch a.Deed {
	case pay:
		e.path, e.body = "/"+k.operation()+"s", k.body(k.Amount)
	case payOther:
		e.path, e.body = "/"+k.operation()+"s", k.body(k.Amount+1)
	case cancel:
		e.path = byKey + "/cancel"
	case cancelShown, cancelOther:
		e.path, e.body = byKey+"/cancel", k.body(k.Amount)
		switch {
		case w.plan.V1 && k.Hold:
			e.body = "" // it would be looked for where there are no holds, and parked
		case a.Deed == cancelOther:
			e.body = k.body(k.Amount + 1)
		}
	case capture:
		e.path, e.body, e.follow = "/holds/"+payment+"/capture", "{}", followUpKey(i, a)
		if a.Amount != whole {
			e.body = fmt.Sprintf(`{"amount": %d}`, amount)
		}
	case release:
		e.path, e.body, e.follow = "/holds/"+payment+"/release", "{}", followUpKey(i, a)
	case credit:
		to := k.Account
		if a.Amount == misplace {
			to++
		}
		e.path, e.follow = "/credits", followUpKey(i, a)
		e.body = creditBody(k, payment, to, amount)
	case payout:
		e.path, e.follow = "/credits", followUpKey(i, a)
		e.body = fmt.Sprintf(`{"account": %q, "amount": %d, "currency": %q}`, account(k.Account), amount, currency)
	case payBurst, payoutBurst: // see perform
	case look:
		e.method, e.path = http.MethodGet, byKey
	case lookFollowUp:
		e.method, e.path = http.MethodGet, "/operations/by-key/credit/"+followUpKey(i, a)
	}
	t.send(e, k)
	return e
}

// followUpKey is the Idempotency-Key of a follow-up of the i-th payment.
func followUpKey(i int, a act) string {
	if a.Deed == payout {
		return fmt.Sprintf("payout-%d-%d", i, a.Second)
	}
	return fmt.Sprintf("follow-up-%d-%d", i, a.Second)
}

func creditBody(k key, payment string, to int, amount int64) string {
	return fmt.Sprintf(`{"account": %q, "amount": %d, "currency": %q, "%sId": %q}`, account(to), amount, currency, k.operation(), payment)
}

func (k key) body(amount int64) string {
	return fmt.Sprintf(`{"account": %q, "amount": %d, "currency": %q}`, account(k.Account), amount, currency)
}

// id is the payment of the i-th key, as far as a till has been told: else one that is
// nobody's.
func (w *world) id(i int) (id string, known bool) {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	for _, e := range w.journal.exchanges {
		if e.keyOf == i && e.follow == "" && e.told.ID != "" {
			return e.told.ID, true
		}
	}
	return "00000000-0000-7000-8000-000000000000", false
}

// send sends e and keeps what it heard.
func (t *till) send(e *exchange, k key) {
	w := t.w
	w.journal.begin(e)
	ctx, hangUp := context.WithCancel(w.ctx)
	defer hangUp()
	if e.act.HangUp > 0 {
		timer := time.AfterFunc(e.act.HangUp, hangUp)
		defer timer.Stop()
	}
	req, err := http.NewRequestWithContext(ctx, e.method, "http://"+e.on.host()+e.path, bytes.NewReader([]byte(e.body)))
	if err != nil {
		w.journal.complain("harness", "make a request: %v", err)
		return
	}
	req.GetBody = nil // without it the client cannot repeat the request behind our back
	req.Header.Set("Authorization", "Bearer "+token(k.Caller))
	req.Header.Set(exchangeHeader, strconv.Itoa(e.n))
	if e.method == http.MethodPost {
		if e.body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		switch {
		case e.follow != "":
			req.Header.Set("Idempotency-Key", e.follow)
		case e.act.Deed == pay || e.act.Deed == payOther:
			req.Header.Set("Idempotency-Key", k.name(e.keyOf))
		}
		if e.act.Deadline >= 0 {
			req.Header.Set("Request-Deadline-Ms", strconv.Itoa(e.act.Deadline))
		}
	}
	resp, err := t.client.Do(req)
	var answer []byte
	if err == nil {
		answer, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	if err != nil {
		e.err = err
		return
	}
	e.ended, e.status, e.answer = time.Now(), resp.StatusCode, string(answer)
	e.retryAfter, e.location = resp.Header.Get("Retry-After"), resp.Header.Get("Location")
	e.replayed = resp.Header.Get("Idempotency-Replayed") == "true"
	if err := json.Unmarshal(answer, &e.told); err != nil {
		w.journal.complaints = append(w.journal.complaints, complaint{"answers", fmt.Sprintf("an answer that is not JSON: %q", answer)})
	}
	if e.status >= 400 && e.told.Decision == "" {
		e.told.ID = "" // of a problem
	}
}
