package schedules

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/servicetest"
	"github.com/safeledger/safeledger/internal/walletsim"
)

// oracle holds the ledger's rows and what the tills have seen against the wallet's book,
// which is the truth, when all is quiet.
type oracle struct {
	*world

	rows    []payment.Timeline // by the plan's key; the zero one where there is no row
	payouts []payment.FollowUpDetail
	belongs map[string]string // who a reference belongs to, in words

	arrived map[string][]walletsim.Entry // mutations, by reference
	asked   map[string][]walletsim.Entry // lookups, by reference
	applied map[string][]walletsim.Entry // effects on money, by reference
	// answered are the answers, by reference; those to lookups apart.
	answered, found map[string][]walletsim.Entry
	rejected        map[string][]string // the codes of refusals, by reference
	came            map[int64]time.Time // when a request arrived, by the wallet's number of it
}

// judge says which invariants w has broken.
func (w *world) judge() []complaint {
	o := &oracle{
		world: w, belongs: map[string]string{},
		arrived: map[string][]walletsim.Entry{}, asked: map[string][]walletsim.Entry{}, applied: map[string][]walletsim.Entry{},
		answered: map[string][]walletsim.Entry{}, found: map[string][]walletsim.Entry{}, came: map[int64]time.Time{},
		rejected: map[string][]string{},
	}
	o.readLedger()
	o.readBook()
	for i := range w.plan.Keys {
		o.judgeAnswers(i)
		o.judgeMoney(i)
		o.judgeFollowUps(i)
	}
	for _, f := range o.payouts {
		o.judgeEffects("a payout", f)
	}
	for _, e := range w.journal.exchanges {
		o.judgeForm(e)
		o.judgeTime(e)
	}
	o.judgeCalls()
	o.judgeBudgets()
	o.judgeSums()
	o.markAll()
	return w.journal.complaints
}

func (o *oracle) readLedger() {
	for i, k := range o.plan.Keys {
		var row payment.Timeline
		p, found, err := o.ledger.PaymentByKey(o.ctx, owners[k.Caller], payment.Operation(k.operation()), payment.Key(k.name(i)))
		if err == nil && found {
			row, _, err = o.ledger.Timeline(o.ctx, p.ID)
		}
		if err != nil {
			o.journal.complain("harness", "read the ledger: %v", err)
		}
		o.rows = append(o.rows, row)
		if found {
			o.belongs[row.Payment.Reference.String()] = k.name(i)
			if row.Payment.State == payment.Declined && row.Payment.Account == "" {
				// What a lost claim would have been known by.
				o.belongs[o.derived(i, k.Amount)], o.belongs[o.derived(i, k.Amount+1)] = k.name(i), k.name(i)
			}
		}
		for _, f := range row.FollowUps {
			o.belongs[f.Outbound.String()] = fmt.Sprintf("%s of %s", f.Kind, k.name(i))
		}
		for second := range 3 {
			key := payment.Key(followUpKey(i, act{Deed: payout, Second: second}))
			f, found, err := o.ledger.OperationByKey(o.ctx, owners[k.Caller], payment.Credit, key)
			if err != nil {
				o.journal.complain("harness", "read the ledger: %v", err)
			}
			if found {
				alone, _, _ := o.ledger.Timeline(o.ctx, f.ID)
				o.payouts = append(o.payouts, alone.FollowUps...)
				o.belongs[alone.FollowUps[0].Outbound.String()] = string(key)
			}
		}
	}
}

// derived is the reference of the i-th key's request for amount.
func (o *oracle) derived(i int, amount int64) string {
	k := o.plan.Keys[i]
	return payment.Request{
		Caller: owners[k.Caller], Operation: payment.Operation(k.operation()), Key: payment.Key(k.name(i)), Account: account(k.Account),
		Amount: payment.Money{AmountMinor: amount, Currency: currency},
	}.DeriveReference().String()
}

func (o *oracle) readBook() {
	for _, e := range o.sim.Book() {
		if e.Request == nil || e.Reference == "" {
			continue
		}
		if e.Event == walletsim.Arrived {
			o.came[e.Exchange] = e.At
		}
		switch {
		case e.Event == walletsim.Arrived && e.Operation == walletsim.Lookup:
			o.asked[e.Reference] = append(o.asked[e.Reference], e)
		case e.Event == walletsim.Answered && e.Operation == walletsim.Lookup:
			o.found[e.Reference] = append(o.found[e.Reference], e)
		case e.Event == walletsim.Answered:
			o.answered[e.Reference] = append(o.answered[e.Reference], e)
		case e.Event == walletsim.Arrived:
			o.arrived[e.Reference] = append(o.arrived[e.Reference], e)
		case e.Event == walletsim.Applied:
			o.applied[e.Reference] = append(o.applied[e.Reference], e)
			if e.Effect.Late {
				o.journal.mark(markLandedLate)
			}
		case e.Event == walletsim.Rejected:
			o.rejected[e.Reference] = append(o.rejected[e.Reference], e.Effect.Code)
		case e.Event == walletsim.Recognised:
			o.journal.mark(markRecognised)
		}
		if e.Event == walletsim.Arrived && e.Malformed != "" {
			o.journal.complain("I12", "the wallet could not understand a request: %s", e.Malformed)
		}
	}
	for reference, entries := range o.arrived {
		first := entries[0]
		for _, e := range entries {
			if e.Body != first.Body || e.Path != first.Path || e.IdempotencyKey != first.IdempotencyKey ||
				!o.plan.V1 && e.IdempotencyKey != reference {
				o.journal.complain("I12", "one reference, two requests: %s %s %q and %s %s %q", first.Path, first.Body, first.IdempotencyKey, e.Path, e.Body, e.IdempotencyKey)
			}
		}
		if o.belongs[reference] == "" {
			o.journal.complain("I6", "the wallet has a %s of reference %s, which is nobody's", first.Operation, reference)
		}
	}
}

// isReversed reports whether the i-th payment has a reversal: of an approval, only a
// cancel by key writes one.
func (o *oracle) isReversed(i int) bool {
	return slices.ContainsFunc(o.rows[i].FollowUps, func(f payment.FollowUpDetail) bool { return f.Kind == payment.Reversal })
}

// cancelled reports whether a till was told that the i-th key is cancelled.
func (o *oracle) cancelled(i int) bool {
	return slices.ContainsFunc(o.about(i), func(e *exchange) bool { return e.isCancel() && e.status == http.StatusOK })
}

// about are the exchanges about the i-th key's payment, that is not those about what
// follows it up, that were answered.
func (o *oracle) about(i int) (all []*exchange) {
	for _, e := range o.journal.exchanges {
		if e.keyOf == i && e.follow == "" && !e.ended.IsZero() {
			all = append(all, e)
		}
	}
	return all
}

func (e *exchange) isPay() bool { return e.act.Deed == pay || e.act.Deed == payOther }

func (e *exchange) isCancel() bool {
	return e.act.Deed == cancel || e.act.Deed == cancelShown || e.act.Deed == cancelOther
}

// decided reports whether e was answered with the decision of its payment.
func (e *exchange) decided() bool {
	return e.isPay() && (e.status == http.StatusCreated || e.status == http.StatusPaymentRequired || e.status == http.StatusFailedDependency)
}

// judgeAnswers holds what was said about the i-th payment to what is stored (I1), and to
// a register that is written once (I15).
func (o *oracle) judgeAnswers(i int) {
	p := o.rows[i].Payment
	name := o.plan.Keys[i].name(i)
	stored := p.ID != uuid.Nil
	tombstone := p.State == payment.Declined && p.Account == ""
	if stored && p.State == payment.InFlight {
		o.journal.complain("I7", "%s is in flight for ever", name)
	}
	var first *exchange // with the decision
	fresh := 0
	var undone *exchange // that was told what undoes it
	for _, e := range o.about(i) {
		wrong := func(invariant, format string, args ...any) {
			o.journal.complain(invariant, "%s: exchange %d (%s) was answered %d %s: %s", name, e.n, e.act.Deed, e.status, e.told.Code, fmt.Sprintf(format, args...))
		}
		amount := o.plan.Keys[i].Amount
		if e.act.Deed == payOther || e.act.Deed == cancelOther {
			amount++
		}
		switch {
		case e.decided():
			if !stored {
				wrong("I1", "there is no such payment")
				continue
			}
			if !e.replayed {
				fresh++
			}
			want := p.State == payment.Approved && e.status == http.StatusCreated && e.told.WalletID == p.WalletID && e.told.Decision == "APPROVED"
			if p.State == payment.Declined {
				status := http.StatusPaymentRequired
				if p.Code.Retryable() {
					status = http.StatusFailedDependency
				}
				want = e.status == status && e.told.Code == string(p.Code) && e.told.Decision == "DECLINED"
			}
			if !want || e.told.ID != p.ID.String() {
				wrong("I1", "stored is %s %s %s", p.ID, p.State, cmp.Or(string(p.Code), p.WalletID))
			}
			if amount != p.Amount.AmountMinor && !tombstone {
				wrong("I1", "it asked for %d, and stored is %d", amount, p.Amount.AmountMinor)
			}
			if first == nil {
				first = e
			}
			if e.answer != first.answer || e.location != first.location || e.retryAfter != first.retryAfter {
				wrong("I1", "exchange %d was answered otherwise:\n%s\n%s", first.n, first.answer, e.answer)
			}
		case e.told.Code == "IDEMPOTENCY_KEY_REUSED":
			if !stored || tombstone || amount == p.Amount.AmountMinor {
				wrong("I1", "it is the request of the key")
			}
		case e.told.Code == "PAYMENT_CANCELLED":
			// The release of a hold may be what undoes it, after a cancel whose answer was lost.
			tried := slices.ContainsFunc(o.journal.exchanges, func(e *exchange) bool { return e.keyOf == i && e.isCancel() })
			if p.State != payment.Approved || !o.isReversed(i) && !tried {
				wrong("I1", "it was not")
			}
		case e.isCancel() && e.status == http.StatusOK:
			if e.told.ID != p.ID.String() || e.told.Decision != string(p.State) || e.told.Code != string(p.Code) {
				wrong("I1", "stored is %s %s %s", p.ID, p.State, p.Code)
			}
			if e.told.Reversal == "" && p.State == payment.Approved {
				wrong("I5", "nothing undoes the approval")
			}
			if undone != nil && e.told.Reversal != undone.told.Reversal && (e.told.Reversal != "" || e.sent.After(undone.ended)) {
				wrong("I1", "what undoes it was %s before", undone.told.Reversal)
			}
			if e.told.Reversal == "" {
				continue
			}
			undone = e
			if !slices.ContainsFunc(o.rows[i].FollowUps, func(f payment.FollowUpDetail) bool {
				return f.ID.String() == e.told.Reversal && (f.Kind == payment.Reversal || f.Kind == payment.Release)
			}) {
				wrong("I13", "there is no follow-up %s that could undo it", e.told.Reversal)
			}
		case e.act.Deed == look && e.status == http.StatusOK:
			if e.told.ID != p.ID.String() || e.told.Decision != string(p.State) || e.told.Code != string(p.Code) {
				wrong("I1", "stored is %s %s %s", p.ID, p.State, p.Code)
			}
		}
	}
	if fresh > 1 {
		o.journal.complain("I1", "%s: %d answers say that they are the first", name, fresh)
	}
	o.judgeOrder(i)
}

// judgeOrder: what has been told once is told from then on. Nobody hears later that the
// payment is unknown, or in flight, or his to decide; and nobody hears of an approval
// that has been cancelled.
func (o *oracle) judgeOrder(i int) {
	name := o.plan.Keys[i].name(i)
	about := o.about(i)
	for _, before := range about {
		known := before.decided() || before.told.Code == "PAYMENT_CANCELLED" || before.status == http.StatusOK
		if !known {
			continue
		}
		for _, e := range about {
			if !e.sent.After(before.ended) {
				continue
			}
			switch e.told.Code {
			case "REQUEST_IN_FLIGHT", "PAYMENT_NOT_YET_DECIDED", "PAYMENT_NOT_FOUND":
				o.journal.complain("I15", "%s: exchange %d was answered %s, after %d was %d %s", name, e.n, e.told.Code, before.n, before.status, before.told.Decision)
			}
			if e.decided() && !e.replayed {
				o.journal.complain("I15", "%s: exchange %d was decided anew, after %d was %d %s", name, e.n, before.n, before.status, before.told.Decision)
			}
			if before.isCancel() && e.status == http.StatusCreated {
				o.journal.complain("I15", "%s: exchange %d was told of an approval, after %d had cancelled it", name, e.n, before.n)
			}
		}
	}
}

// judgeMoney holds the i-th payment to what the wallet did (I2 to I5).
func (o *oracle) judgeMoney(i int) {
	row, name := o.rows[i], o.plan.Keys[i].name(i)
	p := row.Payment
	if p.ID == uuid.Nil {
		for _, amount := range []int64{o.plan.Keys[i].Amount, o.plan.Keys[i].Amount + 1} {
			if n := len(o.arrived[o.derived(i, amount)]); n > 0 {
				o.journal.complain("I6", "%s has no row, and %d requests at the wallet", name, n)
			}
		}
		return
	}
	reference := p.Reference.String()
	effects := o.applied[reference]
	if len(effects) > 1 || len(o.arrived[reference]) > 1 {
		o.journal.complain("I2", "%s: %d requests, %d effects", name, len(o.arrived[reference]), len(effects))
		return
	}
	took := len(effects) == 1
	switch {
	case p.State == payment.Approved && !took:
		o.journal.complain("I4", "%s is approved, and the wallet has not applied it", name)
		return
	case p.State == payment.Approved && effects[0].Effect.ID != p.WalletID:
		o.journal.complain("I4", "%s is approved as %s, and the wallet applied it as %s", name, p.WalletID, effects[0].Effect.ID)
	case took && (effects[0].Effect.AmountMinor != p.Amount.AmountMinor || effects[0].Account != p.Account):
		o.journal.complain("I4", "%s took %d of %s", name, effects[0].Effect.AmountMinor, effects[0].Account)
	}

	// What the wallet says about the moment is a verdict about a payment (contract section
	// 2), and no effect either.
	ours := p.Code.Retryable() || p.Code == payment.Cancelled || p.Code == payment.WalletRejected || p.Code == codeNotNow
	if p.State == payment.Declined && !ours && !slices.Contains(o.rejected[reference], string(p.Code)) {
		o.journal.complain("I4", "%s is declined %s, and the wallet has not refused it so", name, p.Code)
	}

	reversals := 0
	net := int64(0) // what the customer is without, by the book
	if took {
		net = -effects[0].Effect.BalanceChange
	}
	credited := int64(0) // what tills have asked to be given back and was
	captured := int64(0)
	for _, f := range row.FollowUps {
		o.judgeEffects(fmt.Sprintf("%s: %s %s", name, f.Kind, f.ID), f)
		if f.Kind == payment.Reversal {
			reversals++
		}
		for _, e := range o.applied[f.Outbound.String()] {
			net -= e.Effect.BalanceChange
			switch f.Kind {
			case payment.Credit:
				credited += e.Effect.AmountMinor
			case payment.Capture:
				captured += e.Effect.AmountMinor
			case payment.Debit, payment.Hold, payment.Release, payment.Reversal:
			}
		}
	}
	o.judgeNotApplied(name, row)
	o.judgeAcceptances(name, row)
	if reversals > 1 {
		o.journal.complain("I3", "%s has %d reversals", name, reversals)
	}
	if net < 0 || credited > p.Amount.AmountMinor {
		o.journal.complain("I3", "%s of %d: %d given back, the customer has gained %d", name, p.Amount.AmountMinor, credited, -net)
	}
	want := p.Amount.AmountMinor - credited
	released := slices.ContainsFunc(row.FollowUps, func(f payment.FollowUpDetail) bool {
		return f.Kind == payment.Release && f.State == payment.Succeeded
	})
	switch {
	case p.State == payment.Declined, o.isReversed(i), o.cancelled(i), released:
		want = 0
	case p.Operation == payment.Hold && captured > 0:
		want = captured - credited
	}
	if net != want {
		invariant := "I4"
		if want == 0 {
			invariant = "I5"
		}
		o.journal.complain(invariant, "%s of %d is %s %s, and the customer is without %d, want %d", name, p.Amount.AmountMinor, p.State, p.Code, net, want)
	}
	if len(o.journal.strikes) == 0 && len(o.plan.Events) == 0 {
		if took := p.DecidedAt.Sub(p.CreatedAt); took > servicetest.Horizon+time.Second+ms {
			o.journal.complain("I7", "%s was in flight for %s", name, took)
		}
	}
}

// judgeAcceptances: a hold ends once, and what is reversed takes nothing more (I3). What
// the wallet has refused has given back what it held before the next was accepted.
func (o *oracle) judgeAcceptances(name string, row payment.Timeline) {
	ends := func(f payment.FollowUpDetail) bool { return f.Kind == payment.Capture || f.Kind == payment.Release }
	for i, later := range row.FollowUps {
		for _, f := range row.FollowUps[:i] {
			over := f.State == payment.Refused && !f.EndedAt.After(later.CreatedAt)
			if f.Kind == payment.Reversal || ends(f) && ends(later) && !over {
				o.journal.complain("I3", "%s: a %s was accepted behind its %s, which ended %s", name, later.Kind, f.Kind, f.State)
			}
		}
	}
}

// judgeNotApplied: not found is not proof. What ended NOT_APPLIED ended by a word of the
// wallet's own: that it refused it, or, when nothing could land any more, that it has
// never seen it (I11).
func (o *oracle) judgeNotApplied(name string, row payment.Timeline) {
	for _, f := range row.FollowUps {
		if f.State != payment.NotApplied {
			continue
		}
		window := servicetest.Queue().SettleWindow
		if o.skewed() {
			window -= time.Minute
		}
		refused, unseen := false, false
		for _, e := range o.found[row.Payment.Reference.String()] {
			refused = refused || e.Answer.Status == http.StatusOK && strings.Contains(e.Answer.Body, `"REJECTED"`)
			unseen = unseen || e.Answer.Status == http.StatusNotFound && strings.Contains(e.Answer.Body, `"NOT_FOUND"`) && !e.At.Before(f.CreatedAt.Add(window))
		}
		early := f.EndedAt.Sub(f.CreatedAt) < window
		tombstone := row.Payment.Account == "" // it may be reversed by a reference that is not its own
		if !refused && !tombstone && (early || !unseen) {
			o.journal.complain("I11", "%s: its reversal ended NOT_APPLIED after %s, the wallet has refused it: %v, has said after the window that it knows of none: %v",
				name, f.EndedAt.Sub(f.CreatedAt), refused, unseen)
		}
	}
}

// skewed reports whether the ledger's clock has jumped.
func (o *oracle) skewed() bool {
	return slices.ContainsFunc(o.plan.Events, func(e event) bool { return e.What == clockAhead || e.What == clockBack })
}

// judgeEffects holds a follow-up to what the wallet did: it has ended, and the wallet has
// done what its row says, once.
func (o *oracle) judgeEffects(what string, f payment.FollowUpDetail) {
	reference := f.Outbound.String()
	effects, sends := len(o.applied[reference]), len(o.arrived[reference])
	if f.State == payment.Pending || f.State == payment.Parked {
		o.journal.complain("I13", "%s has not ended: %s %s", what, f.State, f.ParkReason)
	}
	if effects > 1 {
		o.journal.complain("I3", "%s: %d effects", what, effects)
	}
	if sends > f.Attempts {
		o.journal.complain("I12", "%s: %d requests on the wire, %d attempts", what, sends, f.Attempts)
	}
	want := 0
	if f.State == payment.Succeeded {
		want = 1
	}
	switch {
	case f.Kind == payment.Reversal && f.State == payment.Succeeded && f.WalletID == "":
		want = effects // nothing was left to give back, or the hold was gone already
	case f.Kind == payment.Release && f.State == payment.Succeeded && f.WalletID == "":
		want = effects // the same, of a release that undoes a cancelled hold
	}
	if f.State == payment.Refused && !slices.Contains(o.rejected[reference], string(f.Code)) {
		o.journal.complain("I4", "%s ended REJECTED %s, and the wallet has not refused it so", what, f.Code)
	}
	if effects != want {
		o.journal.complain("I4", "%s ended %s, and the wallet applied it %d times", what, f.State, effects)
	}
	for _, e := range o.applied[reference] {
		if f.WalletID != "" && e.Effect.ID != f.WalletID {
			o.journal.complain("I4", "%s ended as %s, and the wallet applied it as %s", what, f.WalletID, e.Effect.ID)
		}
		if (f.Kind == payment.Credit || f.Kind == payment.Capture) && e.Effect.AmountMinor != f.Amount.AmountMinor {
			o.journal.complain("I4", "%s of %d moved %d", what, f.Amount.AmountMinor, e.Effect.AmountMinor)
		}
	}
}

// judgeFollowUps holds what was said about the follow-ups of the i-th payment to what is
// stored.
func (o *oracle) judgeFollowUps(i int) {
	type identity struct {
		deed deed
		key  string
	}
	first := map[identity]*exchange{}
	p := o.rows[i].Payment
	for _, e := range o.journal.exchanges {
		if e.keyOf != i || e.follow == "" || e.ended.IsZero() || e.method == http.MethodGet {
			continue
		}
		wrong := func(invariant, format string, args ...any) {
			o.journal.complain(invariant, "exchange %d (%s %s) was answered %d %s: %s", e.n, e.act.Deed, e.follow, e.status, e.told.Code, fmt.Sprintf(format, args...))
		}
		switch {
		case e.status == http.StatusAccepted:
			id := identity{e.act.Deed, e.follow}
			if first[id] == nil {
				first[id] = e
			} else if first[id].answer != e.answer || first[id].location != e.location || !e.replayed && !first[id].replayed {
				wrong("I1", "exchange %d was answered otherwise:\n%s\n%s", first[id].n, first[id].answer, e.answer)
			}
			if !slices.ContainsFunc(append(o.payouts, o.rows[i].FollowUps...), func(f payment.FollowUpDetail) bool { return f.ID.String() == e.told.ID }) {
				wrong("I13", "there is no such follow-up")
			}
		case e.told.Code == "NOT_REFUNDABLE" && p.Operation == payment.Debit && p.State == payment.Approved && !o.isReversed(i):
			wrong("answers", "the debit is approved")
		}
	}
}

// expected are the codes of answers that are not decisions, by what was asked for.
var expected = map[deed]string{
	pay:          "REQUEST_IN_FLIGHT IDEMPOTENCY_KEY_REUSED PAYMENT_CANCELLED HOLDS_UNSUPPORTED",
	cancel:       "HOLD_ALREADY_CAPTURED IDEMPOTENCY_KEY_REUSED",
	capture:      "HOLD_NOT_FOUND PAYMENT_NOT_YET_DECIDED HOLD_NOT_ACTIVE HOLD_ALREADY_CAPTURED AMOUNT_EXCEEDS_HOLD IDEMPOTENCY_KEY_REUSED HOLDS_UNSUPPORTED",
	release:      "HOLD_NOT_FOUND PAYMENT_NOT_YET_DECIDED HOLD_NOT_ACTIVE HOLD_ALREADY_CAPTURED IDEMPOTENCY_KEY_REUSED HOLDS_UNSUPPORTED",
	credit:       "DEBIT_NOT_FOUND HOLD_NOT_FOUND PAYMENT_NOT_YET_DECIDED NOT_REFUNDABLE AMOUNT_EXCEEDS_DEBIT AMOUNT_EXCEEDS_CAPTURE ACCOUNT_MISMATCH IDEMPOTENCY_KEY_REUSED",
	payout:       "FORBIDDEN IDEMPOTENCY_KEY_REUSED",
	look:         "PAYMENT_NOT_FOUND PAYMENT_NOT_YET_DECIDED",
	lookFollowUp: "OPERATION_NOT_FOUND",
}

// judgeForm holds an answer to the rules that are the same for all (I8).
func (o *oracle) judgeForm(e *exchange) {
	if e.ended.IsZero() {
		return
	}
	wrong := func(invariant, format string, args ...any) {
		o.journal.complain(invariant, "exchange %d (%s) was answered %d %s, Retry-After %q: %s", e.n, e.act.Deed, e.status, e.told.Code, e.retryAfter, fmt.Sprintf(format, args...))
	}
	kind := e.act.Deed
	switch kind {
	case payOther:
		kind = pay
	case cancelShown, cancelOther:
		kind = cancel
	}
	wait := ""
	switch e.told.Code {
	case "DRAINING", "OVERLOADED", "NOT_READY":
		wait = "1"
		perCaller := e.told.Code == "OVERLOADED" && o.plan.Settings.MaxPerCaller > 0
		if e.status != http.StatusServiceUnavailable || e.states > 0 || e.handled && !perCaller {
			wrong("I8", "handler invoked: %v, %d statements", e.handled, e.states)
		}
	case "OUTCOME_UNKNOWN":
		if e.method == http.MethodGet || e.status != http.StatusServiceUnavailable {
			wrong("answers", "unexpected")
		}
		if !e.failed && !o.journal.stood(e.on, e.sent, e.ended) && !e.on.isDead() {
			wrong("answers", "storage has not failed")
		}
	case "STORAGE_UNAVAILABLE":
		if e.method != http.MethodGet {
			wrong("answers", "unexpected")
		}
	case "REQUEST_IN_FLIGHT", "PAYMENT_NOT_YET_DECIDED":
		wait = "1"
		fallthrough
	default:
		fine := e.decided() || e.status == http.StatusOK || e.status == http.StatusAccepted
		if !fine && !slices.Contains(strings.Fields(expected[kind]), e.told.Code) {
			wrong("answers", "unexpected")
		}
	}
	if e.status == http.StatusFailedDependency {
		wait = "2"
	}
	if e.retryAfter != wait {
		wrong("I8", "want %q", wait)
	}
}

// judgeTime holds an answer to its till's time (I10).
func (o *oracle) judgeTime(e *exchange) {
	policy := servicetest.Budget()
	limit := policy.Server
	if e.act.Deadline >= 0 && e.method == http.MethodPost {
		limit = min(max(time.Duration(e.act.Deadline)*ms-policy.NetworkReserve, 0), policy.Server)
	}
	// A till that has left has still asked: what it has begun is decided in its time.
	mine := slices.ContainsFunc(o.journal.calls, func(c *call) bool { return c.exchange == e.n })
	if p := o.rows[e.keyOf].Payment; e.ended.IsZero() && mine && !e.failed && !e.on.isDead() && !o.skewed() &&
		!o.journal.stood(e.on, e.sent, e.sent.Add(limit)) && p.DecidedAt.After(e.sent.Add(limit)) {
		o.journal.complain("I10", "exchange %d was given up, and decided %s after it began, limit %s", e.n, p.DecidedAt.Sub(e.sent), limit)
	}
	if e.ended.IsZero() || o.journal.stood(e.on, e.sent, e.ended) {
		return
	}
	took := e.ended.Sub(e.sent)
	switch {
	case e.struck && e.method == http.MethodPost:
		limit += 300 * ms
	case e.struck:
	case !e.decided() || e.replayed:
		if e.told.Code != "OUTCOME_UNKNOWN" {
			limit = 0
		}
	}
	if took > limit {
		o.journal.complain("I10", "exchange %d (%s) was answered %d %s after %s, limit %s", e.n, e.act.Deed, e.status, e.told.Code, took, limit)
	}
}

// judgeCalls holds the calls of the lanes to what was on the wire (I9, I10, I11).
func (o *oracle) judgeCalls() {
	limits := servicetest.Limits()
	decisions := map[payment.Reference][]*call{}
	for _, c := range o.journal.calls {
		wrong := func(invariant, format string, args ...any) {
			o.journal.complain(invariant, "%s of %s %s (exchange %d): %s", c.lane, c.in.Operation, c.in.Reference, c.exchange, fmt.Sprintf(format, args...))
		}
		if c.lane == "worker" && c.in.Operation.IsPayment() && !c.lookup {
			wrong("I9", "a worker sends a payment")
		}
		if c.lane == "decision" {
			decisions[c.in.Reference] = append(decisions[c.in.Reference], c)
		}
		until := c.ended
		if until.IsZero() {
			continue // it died
		}
		o.judgeEvidence(c, wrong)
		o.judgeResolved(c, wrong)
		stood := o.journal.stood(c.p, c.began, until)
		most := limits.Call
		switch {
		case c.lane == "worker":
			most = servicetest.Queue().CallLimit
		case c.lookup:
			most = limits.Lookup
		}
		if left := c.deadline.Sub(c.began); !stood && c.lane == "decision" && left < limits.MinToSend {
			wrong("I10", "begun with %s left", left)
		}
		if took := until.Sub(c.began); !stood && (took > most || until.After(c.deadline)) {
			wrong("I10", "took %s, limit %s, deadline %s after its begin", took, most, c.deadline.Sub(c.began))
		}
		for _, e := range o.wire(c) {
			if left := c.deadline.Sub(e.At); !stood && left < limits.MinToSend {
				wrong("I10", "sent with %s left", left)
			}
			unsent := c.outcome.Class == payment.Unavailable && c.outcome.Status == 0
			if c.lookup {
				unsent = c.evidence.Finding == payment.NoEvidence && c.evidence.Status == 0 &&
					slices.Contains([]payment.Reason{payment.ReasonBreakerOpen, payment.ReasonDeadlineSpent, payment.ReasonConnectFailed, payment.ReasonConnectTimeout}, c.evidence.Reason)
			}
			if unsent && !c.p.isDead() {
				wrong("I11", "it is said not to have been sent, and arrived")
			}
		}
	}
	for reference, calls := range decisions {
		var sends, lookups []*call
		for _, c := range calls {
			if c.lookup {
				lookups = append(lookups, c)
			} else {
				sends = append(sends, c)
			}
		}
		if len(sends) != 1 || len(lookups) > 1 {
			o.journal.complain("I9", "%s: %d calls and %d lookups for one decision", reference, len(sends), len(lookups))
			continue
		}
		if len(lookups) == 1 && sends[0].outcome.Class != payment.Ambiguous {
			o.journal.complain("I9", "%s: a lookup after %s", reference, sends[0].outcome.Class)
		}
	}
	for reference, entries := range o.arrived {
		calls := 0
		for _, c := range o.journal.calls {
			if !c.lookup && c.in.Reference.String() == reference {
				calls++
			}
		}
		if len(entries) > calls {
			o.journal.complain("I9", "%s: %d requests on the wire for %d calls", reference, len(entries), calls)
		}
	}
	for reference, entries := range o.asked {
		calls := 0
		for _, c := range o.journal.calls {
			if c.lookup && c.in.Reference.String() == reference {
				calls++
			}
		}
		if len(entries) > calls {
			o.journal.complain("I9", "%s: %d questions on the wire for %d lookups", reference, len(entries), calls)
		}
	}
}

// judgeEvidence: whatever c is taken for, the wallet has said, in a whole answer about
// this very reference (I11).
func (o *oracle) judgeEvidence(c *call, wrong func(invariant, format string, args ...any)) {
	said, status, words := o.answered, []int{http.StatusOK, http.StatusCreated}, []string{}
	if !o.plan.V1 {
		words = []string{c.in.Reference.String(), `"APPLIED"`}
	}
	claimed := c.outcome.Class.String()
	switch {
	case c.lookup:
		said, status, claimed = o.found, []int{http.StatusOK}, c.evidence.Finding.String()
		switch c.evidence.Finding {
		case payment.FoundApplied:
			words = []string{c.in.Reference.String(), `"APPLIED"`}
		case payment.FoundRejected:
			words = []string{c.in.Reference.String(), `"REJECTED"`}
		case payment.NotFound:
			status, words = []int{http.StatusNotFound}, []string{`"code"`}
		case payment.NoEvidence:
			return
		}
	case c.outcome.Class == payment.Rejected && c.outcome.Verdict:
		status, words = []int{c.outcome.Status}, []string{`"code"`}
	case c.outcome.Reason == payment.ReasonDuplicate:
		status, words = []int{http.StatusConflict}, []string{`"DUPLICATE_REFERENCE"`, `"existing`}
	case c.outcome.Class != payment.Success:
		return
	}
	heard := slices.ContainsFunc(said[c.in.Reference.String()], func(e walletsim.Entry) bool {
		at := o.came[e.Exchange]
		return !at.Before(c.began) && !at.After(c.ended) && e.Answer.How == walletsim.Whole && slices.Contains(status, e.Answer.Status) &&
			!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Answer.Body, word) })
	})
	if !heard {
		wrong("I11", "taken for %s, and the wallet has not said so", claimed)
	}
}

// judgeResolved: what may have got through is asked about before it is sent again
// (contract section 4, resolve first): by whoever sends it, or when nothing of it could
// land any more, as before a redrive.
func (o *oracle) judgeResolved(c *call, wrong func(invariant, format string, args ...any)) {
	unsent := func(c *call) bool {
		return !c.ended.IsZero() && c.outcome.Class == payment.Unavailable && c.outcome.Status == 0
	}
	if c.lookup || unsent(c) {
		return
	}
	var before *call // the last that may have got through
	for _, other := range o.journal.calls {
		clear := unsent(other) || !other.ended.IsZero() && other.outcome.Class == payment.Rejected && other.outcome.Verdict
		if !other.lookup && other.in.Reference == c.in.Reference && other.began.Before(c.began) && !clear {
			before = other
		}
	}
	if before == nil {
		return
	}
	asked := slices.ContainsFunc(o.journal.calls, func(l *call) bool {
		forGood := l.evidence.Finding == payment.FoundRejected || l.began.Sub(before.began) > servicetest.Queue().SettleWindow-time.Minute
		return l.lookup && (l.p == c.p || forGood) && l.in.Reference == c.in.Reference && l.began.After(before.began) && !l.ended.After(c.began) &&
			(l.evidence.Finding == payment.NotFound || l.evidence.Finding == payment.FoundRejected)
	})
	if !asked {
		wrong("I12", "sent again, and nobody has asked what became of what was sent %s before", c.began.Sub(before.began))
	}
}

// wire is what arrived of c: as far as no other call of the same kind was under way, to
// which it could belong as well.
func (o *oracle) wire(c *call) (own []walletsim.Entry) {
	if slices.ContainsFunc(o.journal.calls, func(other *call) bool {
		return other != c && other.lookup == c.lookup && other.in.Reference == c.in.Reference &&
			!other.began.After(c.ended) && (other.ended.IsZero() || !other.ended.Before(c.began))
	}) {
		return nil
	}
	entries := o.arrived[c.in.Reference.String()]
	if c.lookup {
		entries = o.asked[c.in.Reference.String()]
	}
	for _, e := range entries {
		if !e.At.Before(c.began) && !e.At.After(c.ended) {
			own = append(own, e)
		}
	}
	return own
}

// judgeBudgets: what a process sends again is paid for (contract section 4): ten to begin
// with, one a second, a tenth for what it sends for the first time, and two for each that
// is answered.
func (o *oracle) judgeBudgets() {
	type account struct {
		retries, firsts, answers int
		until                    time.Time
	}
	accounts := map[*process]*account{}
	seen := map[payment.Reference]bool{}
	for _, c := range o.journal.calls {
		if c.lane != "worker" {
			continue
		}
		a := accounts[c.p]
		if a == nil {
			a = &account{}
			accounts[c.p] = a
		}
		a.until = c.began
		answered := c.evidence.Finding == payment.FoundApplied || c.evidence.Finding == payment.FoundRejected ||
			c.outcome.Class == payment.Success || c.outcome.Class == payment.Rejected
		if answered {
			a.answers++
		}
		unsent := c.outcome.Class == payment.Unavailable && c.outcome.Status == 0 && c.outcome.Reason != payment.ReasonConnectFailed && c.outcome.Reason != payment.ReasonConnectTimeout
		if c.lookup || unsent {
			continue
		}
		if seen[c.in.Reference] {
			a.retries++
		} else {
			a.firsts++
		}
		seen[c.in.Reference] = true
		most := 10 + c.began.Sub(c.p.since).Seconds() + float64(a.firsts)/10 + 2*float64(a.answers)
		if float64(a.retries) > most {
			o.journal.complain("I12", "process %d has sent %d again, and its budget is %.1f", c.p.n, a.retries, most)
			return
		}
	}
}

// judgeSums: money is neither made nor lost (I14), and all of it is where the ledger says.
func (o *oracle) judgeSums() {
	totals := o.sim.Totals()[currency]
	if !totals.Constant {
		o.journal.complain("I14", "the wallet's own books do not add up: %+v", totals)
	}
	var held, taken int64
	for i, row := range o.rows {
		p := row.Payment
		if p.State != payment.Approved {
			continue
		}
		if p.Operation == payment.Debit && !o.isReversed(i) {
			taken += p.Amount.AmountMinor
		}
		ended := o.isReversed(i)
		for _, f := range row.FollowUps {
			if f.State != payment.Succeeded {
				continue
			}
			switch f.Kind {
			case payment.Capture:
				ended = true
				taken += f.Amount.AmountMinor
			case payment.Release:
				ended = true
			case payment.Credit:
				if !o.isReversed(i) { // else it is part of what was undone
					taken -= f.Amount.AmountMinor
				}
			case payment.Debit, payment.Hold, payment.Reversal:
			}
		}
		if p.Operation == payment.Hold && !ended {
			held += p.Amount.AmountMinor
		}
	}
	for _, f := range o.payouts {
		if f.State == payment.Succeeded {
			taken -= f.Amount.AmountMinor
		}
	}
	if totals.Held != held || totals.NetDebits != taken {
		o.journal.complain("I14", "the ledger says that %d is held and %d taken, the wallet %d and %d", held, taken, totals.Held, totals.NetDebits)
	}
}
