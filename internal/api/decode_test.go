package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/payment"
)

// body is the good body with one member replaced, or taken away if value is "".
func body(member, value string) string {
	members := []string{"account", "amount", "currency", "reference", "metadata"}
	values := map[string]string{
		"account": `"acc-1001"`, "amount": `1999`, "currency": `"EUR"`, "reference": `"receipt 4711"`, "metadata": `{"till":"3"}`,
	}
	values[member] = value
	var b strings.Builder
	for _, name := range members {
		if values[name] != "" {
			fmt.Fprintf(&b, `,%q:%s`, name, values[name])
		}
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":""`, i)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// A body that we understood differently from the till is a wrong payment. What
// is not exactly the JSON that is asked for is refused, naming the member, and
// nothing is begun.
func TestWhatIsNotTheJSONAskedForIsRefusedByName(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 15<<10)
	tests := map[string]struct {
		body     string
		pointers []string
	}{
		"nothing":                      {" ", []string{""}},
		"cut off":                      {`{"account":"a"`, []string{""}},
		"cut off in a string":          {`{"account":"a`, []string{""}},
		"not JSON":                     {`account=a`, []string{""}},
		"a byte order mark":            {"\ufeff" + goodBody, []string{""}},
		"null":                         {`null`, []string{""}},
		"a list":                       {`[` + goodBody + `]`, []string{""}},
		"a string":                     {`"` + "a" + `"`, []string{""}},
		"deeply nested":                {deep, []string{"/0/0"}},
		"deeply nested member":         {`{"account":` + deep, []string{"/account/0"}},
		"trailing object":              {goodBody + `{}`, []string{""}},
		"trailing word":                {goodBody + ` x`, []string{""}},
		"trailing comma":               {`{"account":"a","amount":1,"currency":"EUR",}`, []string{""}},
		"comment":                      {`{/**/"account":"a"}`, []string{""}},
		"single quotes":                {`{'account':'a'}`, []string{""}},
		"empty object":                 {`{}`, []string{"/account", "/amount", "/currency"}},
		"account missing":              {body("account", ""), []string{"/account"}},
		"amount missing":               {body("amount", ""), []string{"/amount"}},
		"currency missing":             {body("currency", ""), []string{"/currency"}},
		"unknown member":               {body("account", `"a","note":1`), []string{"/note"}},
		"unknown member, nested":       {body("account", `"a","a/b~":{"x":[1,{}]}`), []string{"/a~1b~0"}},
		"unknown member, empty name":   {body("account", `"a","":1`), []string{"/"}},
		"member in another case":       {`{"Account":"a","AMOUNT":1,"currency":"EUR"}`, []string{"/Account", "/AMOUNT", "/account", "/amount"}},
		"member twice":                 {body("amount", `1,"amount":1`), []string{"/amount"}},
		"member twice, once escaped":   {body("amount", `1,"\u0061mount":2`), []string{"/amount"}},
		"metadata member twice":        {body("metadata", `{"a":"1","a":"2"}`), []string{"/metadata/a"}},
		"unknown member twice, nested": {body("metadata", `{"a":"1"},"x":{"b":1,"b":1}`), []string{"/x/b"}},
		"amount as a string":           {body("amount", `"100"`), []string{"/amount"}},
		"amount null":                  {body("amount", `null`), []string{"/amount"}},
		"amount with a fraction":       {body("amount", `100.5`), []string{"/amount"}},
		"amount with an even fraction": {body("amount", `100.0`), []string{"/amount"}},
		"amount with an exponent":      {body("amount", `1e2`), []string{"/amount"}},
		"amount with an Exponent":      {body("amount", `1E+2`), []string{"/amount"}},
		"amount with a leading zero":   {body("amount", `007`), []string{""}},
		"amount with a plus":           {body("amount", `+1`), []string{"/amount"}},
		"amount hexadecimal":           {body("amount", `0x10`), []string{""}},
		"amount not a number":          {body("amount", `NaN`), []string{"/amount"}},
		"amount true":                  {body("amount", `true`), []string{"/amount"}},
		"amount in a list":             {body("amount", `[1]`), []string{"/amount"}},
		"account null":                 {body("account", `null`), []string{"/account"}},
		"account a number":             {body("account", `1`), []string{"/account"}},
		"currency null":                {body("currency", `null`), []string{"/currency"}},
		"reference null":               {body("reference", `null`), []string{"/reference"}},
		"reference an object":          {body("reference", `{}`), []string{"/reference"}},
		"metadata null":                {body("metadata", `null`), []string{"/metadata"}},
		"metadata a list":              {body("metadata", `["a"]`), []string{"/metadata"}},
		"metadata with a number":       {body("metadata", `{"a":1,"b":null,"c":{}}`), []string{"/metadata/a", "/metadata/b", "/metadata/c"}},
		"invalid UTF-8":                {body("reference", "\"a\xffb\""), []string{"/reference"}},
		"invalid UTF-8 in a name":      {body("metadata", "{\"a\xff\":\"\"}"), []string{"/metadata"}},
		"overlong UTF-8":               {body("reference", "\"\xc0\xaf\""), []string{"/reference"}},
		"lone high surrogate":          {body("reference", `"\ud800"`), []string{"/reference"}},
		"lone low surrogate":           {body("reference", `"\udc00x"`), []string{"/reference"}},
		"surrogates the wrong way":     {body("reference", `"\udc00\ud800"`), []string{"/reference"}},
		"surrogate in UTF-8":           {body("reference", "\"\xed\xa0\x80\""), []string{"/reference"}},
		"lone surrogate in a name":     {body("metadata", `{"\ud800":""}`), []string{"/metadata"}},
		"U+0000":                       {body("reference", `"a\u0000b"`), []string{"/reference"}},
		"U+0000 raw":                   {body("reference", "\"a\x00b\""), []string{"/reference"}},
		"U+0000 in an account":         {body("account", `"\u0000"`), []string{"/account"}},
		"U+0000 in metadata":           {body("metadata", `{"a":"\u0000"}`), []string{"/metadata/a"}},
		"U+0000 in a name":             {body("metadata", `{"a\u0000":"x"}`), []string{"/metadata/a\x00"}},
		"several at once":              {`{"account":1,"amount":1.5,"currency":null,"x":0}`, []string{"/account", "/amount", "/currency", "/x"}},
		"400 before 422":               {`{"account":"","amount":0,"currency":null}`, []string{"/currency"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, nil)
			w := s.send(sent{body: test.body})
			refusedWith(t, w, 400, "MALFORMED_REQUEST")
			if diff := cmp.Diff(test.pointers, pointers(t, w.Body.Bytes())); diff != "" {
				t.Errorf("pointers (-want +got):\n%s\n%s", diff, w.Body)
			}
			if n := len(s.requests()); n != 0 {
				t.Errorf("%d requests were begun", n)
			}
		})
	}
	if w := newService(t, nil).send(sent{body: body("", "")}); w.Code != http.StatusCreated {
		t.Errorf("the body that the others are made from: %d", w.Code)
	}
}

// pointers are the members that a problem names.
func pointers(t testing.TB, document []byte) []string {
	t.Helper()
	var problem struct {
		Errors []struct{ Pointer, Detail string }
	}
	if err := json.Unmarshal(document, &problem); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range problem.Errors {
		if e.Detail == "" {
			t.Errorf("%q without a detail", e.Pointer)
		}
		out = append(out, e.Pointer)
	}
	return out
}

// What is out of range is told apart from what is malformed, and all of it at
// once: whoever writes a till corrects it once. Lengths are in characters, so
// that a customer's name costs the same in every script.
func TestWhatIsOutOfRangeIsRefusedByName(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body     string
		pointers []string // none: taken
	}{
		// field report E1: exact, or refused, and never through a float
		"amount 1":               {body("amount", `1`), nil},
		"amount 2^53-1":          {body("amount", `9007199254740991`), nil},
		"amount 2^53":            {body("amount", `9007199254740992`), []string{"/amount"}},
		"amount 2^53+1":          {body("amount", `9007199254740993`), []string{"/amount"}},
		"amount 2^63-1":          {body("amount", `9223372036854775807`), []string{"/amount"}},
		"amount 2^63":            {body("amount", `9223372036854775808`), []string{"/amount"}},
		"amount of 5000 digits":  {body("amount", strings.Repeat("9", 5000)), []string{"/amount"}},
		"amount -2^63-1":         {body("amount", `-9223372036854775809`), []string{"/amount"}},
		"amount 0":               {body("amount", `0`), []string{"/amount"}},
		"amount -0":              {body("amount", `-0`), []string{"/amount"}},
		"amount -1":              {body("amount", `-1`), []string{"/amount"}},
		"account of 64":          {body("account", `"`+strings.Repeat("A", 64)+`"`), nil},
		"account of all kinds":   {body("account", `"aZ09._:-"`), nil},
		"account escaped":        {body("account", `"\u0061\u002d1"`), nil},
		"account of 65":          {body("account", `"`+strings.Repeat("A", 65)+`"`), []string{"/account"}},
		"account empty":          {body("account", `""`), []string{"/account"}},
		"account with a space":   {body("account", `"a b"`), []string{"/account"}},
		"account with a slash":   {body("account", `"a/b"`), []string{"/account"}},
		"account not ASCII":      {body("account", `"ä"`), []string{"/account"}},
		"account with a newline": {body("account", `"a\n"`), []string{"/account"}},
		// field report E3
		"yen":                      {body("currency", `"JPY"`), nil},
		"dinar":                    {body("currency", `"KWD"`), nil},
		"currency in small":        {body("currency", `"eur"`), []string{"/currency"}},
		"currency mixed":           {body("currency", `"Eur"`), []string{"/currency"}},
		"currency unknown":         {body("currency", `"XYZ"`), []string{"/currency"}},
		"currency empty":           {body("currency", `""`), []string{"/currency"}},
		"currency by number":       {body("currency", `"978"`), []string{"/currency"}},
		"currency with a space":    {body("currency", `"EUR "`), []string{"/currency"}},
		"currency of look-alikes":  {body("currency", `"ЕUR"`), []string{"/currency"}},
		"reference of 128":         {body("reference", `"`+strings.Repeat("漢", 128)+`"`), nil},
		"reference of 128, paired": {body("reference", `"`+strings.Repeat(`\ud83d\ude00`, 128)+`"`), nil},
		"reference of 129":         {body("reference", `"`+strings.Repeat("漢", 129)+`"`), []string{"/reference"}},
		"reference empty":          {body("reference", `""`), []string{"/reference"}},
		"reference with a tab":     {body("reference", `"a\tb"`), []string{"/reference"}},
		"reference with C1":        {body("reference", `"a\u0085b"`), []string{"/reference"}},
		"reference with DEL":       {body("reference", `"a\u007fb"`), []string{"/reference"}},
		"no reference":             {body("reference", ""), nil},
		"metadata empty":           {body("metadata", `{}`), nil},
		"no metadata":              {body("metadata", ""), nil},
		"metadata of 20":           {body("metadata", many(20)), nil},
		"metadata of 21":           {body("metadata", many(21)), []string{"/metadata"}},
		"metadata name of 40":      {body("metadata", `{"`+strings.Repeat("ü", 40)+`":""}`), nil},
		"metadata name of 41":      {body("metadata", `{"`+strings.Repeat("u", 41)+`":""}`), []string{"/metadata/" + strings.Repeat("u", 41)}},
		"metadata name empty":      {body("metadata", `{"":"x"}`), []string{"/metadata/"}},
		"metadata name control":    {body("metadata", `{"a\u0001":"x"}`), []string{"/metadata/a\x01"}},
		"metadata value of 500":    {body("metadata", `{"a":"`+strings.Repeat("ß", 500)+`"}`), nil},
		"metadata value of 501":    {body("metadata", `{"a":"`+strings.Repeat("s", 501)+`"}`), []string{"/metadata/a"}},
		"metadata value control":   {body("metadata", `{"a":"\n"}`), []string{"/metadata/a"}},
		"all at once": {
			`{"account":"","amount":0,"currency":"eur","reference":"","metadata":{"a":"\n","":""}}`,
			[]string{"/account", "/amount", "/currency", "/reference", "/metadata/a", "/metadata/"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, nil)
			w := s.send(sent{body: test.body})
			if test.pointers == nil {
				if w.Code != http.StatusCreated {
					t.Errorf("status = %d, want 201\n%s", w.Code, w.Body)
				}
				return
			}
			refusedWith(t, w, 422, "INVALID_VALUE")
			if diff := cmp.Diff(test.pointers, pointers(t, w.Body.Bytes())); diff != "" {
				t.Errorf("pointers (-want +got):\n%s\n%s", diff, w.Body)
			}
			if n := len(s.requests()); n != 0 {
				t.Errorf("%d requests were begun", n)
			}
		})
	}
}

// What is decided is what the till sent: nothing trimmed, folded or rescaled
// (field reports E1, E3).
func TestTheRequestIsExactlyWhatWasSent(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	s.send(sent{path: "/holds", token: otherToken, key: `"k\"1"`, body: ` { "metadata" : {"b":" x ","a":"","é":"é"},
		"currency":"KWD", "amount" : 9007199254740991 , "reference":" Straße 😀 ", "account":"A.b_c:d-1" } `})
	s.send(sent{body: `{"account":"a","amount":500,"currency":"JPY"}`})
	s.send(sent{body: `{"account":"a","amount":500,"currency":"JPY","metadata":{}}`})
	want := []payment.Request{
		{
			Caller: "store-18", Operation: payment.Hold, Key: `k"1`, Account: "A.b_c:d-1",
			Amount:        payment.Money{AmountMinor: 9007199254740991, Currency: "KWD"},
			TillReference: " Straße 😀 ", Metadata: map[string]string{"b": " x ", "a": "", "é": "é"},
		},
		{Caller: "store-17", Operation: payment.Debit, Key: goodKey, Account: "a", Amount: payment.Money{AmountMinor: 500, Currency: "JPY"}},
		{Caller: "store-17", Operation: payment.Debit, Key: goodKey, Account: "a", Amount: payment.Money{AmountMinor: 500, Currency: "JPY"}, Metadata: map[string]string{}},
	}
	if diff := cmp.Diff(want, s.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A shop may be configured to smaller amounts than JavaScript can hold; the
// limit is told as it is configured.
func TestTheConfiguredMaximumHolds(t *testing.T) {
	t.Parallel()
	s := newService(t, func(cfg *api.Config) { cfg.MaxAmount = 50000 })
	if w := s.send(sent{body: body("amount", "50000")}); w.Code != http.StatusCreated {
		t.Errorf("status = %d, want 201", w.Code)
	}
	w := s.send(sent{body: body("amount", "50001")})
	refusedWith(t, w, 422, "INVALID_VALUE")
	if !strings.Contains(w.Body.String(), "from 1 to 50000") {
		t.Errorf("the limit is not told: %s", w.Body)
	}
}

// A body can be wrong in thousands of places; its answer must not be many times
// as large as itself.
func TestTheListOfErrorsIsBounded(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	var b strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&b, `,"%d":0`, i)
	}
	w := s.send(sent{body: "{" + b.String()[1:] + "}"})
	refusedWith(t, w, 400, "MALFORMED_REQUEST")
	if n := len(pointers(t, w.Body.Bytes())); n != 20 {
		t.Errorf("%d errors, want 20", n)
	}
}
