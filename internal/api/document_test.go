package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	apidoc "github.com/safeledger/safeledger/api"
	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/payment"
)

// A problem's type points into the document. Whoever follows it must find the
// problem there, with the status and title that they have in their hands: all
// of them, from the sources, so that a new one is not forgotten.
func TestEveryProblemIsExplainedInTheDocument(t *testing.T) {
	t.Parallel()
	explained := map[string][2]string{}
	for _, m := range regexp.MustCompile(`(?m)^  ([A-Z_]+): \{status: (\d+), title: ([^,]+), advice: `).FindAllStringSubmatch(string(apidoc.OpenAPI), -1) {
		explained[m[1]] = [2]string{m[2], m[3]}
	}

	used := map[string][2]string{}
	statuses := map[string]string{
		"BadRequest": "400", "Unauthorized": "401", "Forbidden": "403", "NotFound": "404", "MethodNotAllowed": "405", "NotAcceptable": "406",
		"Conflict": "409", "RequestEntityTooLarge": "413", "UnsupportedMediaType": "415", "UnprocessableEntity": "422",
		"InternalServerError": "500", "NotImplemented": "501", "ServiceUnavailable": "503",
	}
	source, err := os.ReadFile("refusal.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`problem\(http\.Status(\w+), "([A-Z_]+)", "([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		used[m[2]] = [2]string{statuses[m[1]], m[3]}
	}
	source, err = os.ReadFile("../gate/refusal.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(Draining|Overloaded|NotReady):\s+\{"([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		used[map[string]string{"Draining": "DRAINING", "Overloaded": "OVERLOADED", "NotReady": "NOT_READY"}[m[1]]] = [2]string{"503", m[2]}
	}
	for code, status := range map[payment.Code]string{
		payment.WalletUnavailable: "424", payment.WalletTimeout: "424", payment.WalletRejected: "402", payment.Cancelled: "402", "DECLINED": "402",
	} {
		s := newService(t, func(cfg *api.Config) {
			cfg.Decider = decideFunc(func(_ context.Context, req payment.Request, _ budget.Deadline) (decision.Result, error) {
				return decision.Result{Status: decision.Decided, Payment: declined(req, code)}, nil
			})
		})
		var document struct{ Title string }
		if err := json.Unmarshal(s.send(sent{}).Body.Bytes(), &document); err != nil {
			t.Fatal(err)
		}
		used[string(code)] = [2]string{status, document.Title}
	}
	if diff := cmp.Diff(used, explained); diff != "" {
		t.Errorf("x-problems (-used +explained):\n%s", diff)
	}
}

// A HEAD is a GET without its body: a monitor that asks so must see the same
// fields.
func TestHeadIsAGetWithoutItsBody(t *testing.T) {
	t.Parallel()
	s := newService(t, func(cfg *api.Config) {
		cfg.Ledger = readFunc(func(context.Context, string, string) (payment.Payment, bool, error) {
			return approved(payment.Request{Operation: payment.Debit, Account: "a", Amount: payment.Money{AmountMinor: 1, Currency: "EUR"}}), true, nil
		})
	})
	path := "/payments/" + paymentID.String()
	get, head := s.send(sent{method: http.MethodGet, path: path}), s.send(sent{method: http.MethodHead, path: path})
	if get.Code != head.Code {
		t.Errorf("GET %d, HEAD %d", get.Code, head.Code)
	}
	if diff := cmp.Diff(get.Header(), head.Header()); diff != "" {
		t.Errorf("fields (-GET +HEAD):\n%s", diff)
	}
}
