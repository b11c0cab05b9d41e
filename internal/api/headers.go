package api

import (
	"mime"
	"strconv"
	"strings"

	"github.com/safeledger/safeledger/internal/payment"
)

const (
	jsonType    = "application/json"
	problemType = "application/problem+json"
)

// acceptable reports whether a till that sent these Accept fields would take
// what we answer: application/json or application/problem+json. Only a till that
// excludes both is refused (RFC 9110 section 12.5.1); what cannot be read in the
// field is passed over, because a refusal protects nobody here.
func acceptable(lines []string) bool {
	if len(lines) == 0 {
		return true
	}
	var plain, problem preference
	readable := false
	for item := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		mediaRange, params, err := mime.ParseMediaType(item)
		if err != nil {
			continue
		}
		readable = true
		wanted := params["q"] == ""
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			wanted = q > 0
		}
		plain.consider(mediaRange, jsonType, wanted)
		problem.consider(mediaRange, problemType, wanted)
	}
	return !readable || plain.wanted || problem.wanted
}

// preference is what the most specific range so far says of one media type.
type preference struct {
	specificity int
	wanted      bool
}

func (p *preference) consider(mediaRange, mediaType string, wanted bool) {
	specificity := 0
	switch mediaRange {
	case mediaType:
		specificity = 3
	case "application/*":
		specificity = 2
	case "*/*":
		specificity = 1
	}
	switch {
	case specificity == 0 || specificity < p.specificity:
	case specificity == p.specificity:
		p.wanted = p.wanted || wanted
	default:
		p.specificity, p.wanted = specificity, wanted
	}
}

// isJSON reports whether a body with these Content-Type and Content-Encoding
// fields is JSON in UTF-8, as it is.
func isJSON(contentType, contentEncoding []string) bool {
	if len(contentType) != 1 || len(contentEncoding) != 0 {
		return false
	}
	if contentType[0] == jsonType { // as nearly everybody says it
		return true
	}
	mediaType, params, err := mime.ParseMediaType(contentType[0])
	if err != nil || mediaType != jsonType {
		return false
	}
	charset, given := params["charset"]
	if given {
		delete(params, "charset")
	}
	return len(params) == 0 && (!given || strings.EqualFold(charset, "utf-8"))
}

// idempotencyKey reads the Idempotency-Key fields, or says how to refuse them.
func idempotencyKey(lines []string) (payment.Key, refusal) {
	if len(lines) == 0 {
		return "", missingKey
	}
	// Sent twice there is no telling which one the till will replay with.
	if len(lines) > 1 {
		return "", invalidKey
	}
	key, err := payment.ParseKey(lines[0])
	if err != nil {
		return "", invalidKey
	}
	return key, none
}
