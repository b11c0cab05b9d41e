package api

import (
	"net/http"

	"github.com/safeledger/safeledger/internal/api/apitypes"
)

// refusal is an answer that is not a decision: every row of the table of errors
// in contract section 1 that is ours to give. The gate's three are the gate's.
type refusal uint8

const (
	none refusal = iota

	missingKey
	invalidKey
	invalidDeadline
	malformedRequest
	unauthenticated
	forbidden
	notFound
	paymentNotFound
	paymentNotYetDecided
	operationNotFound
	holdNotFound
	debitNotFound
	methodNotAllowed
	notAcceptable
	requestInFlight
	holdNotActive
	holdAlreadyCaptured
	notRefundable
	paymentCancelled
	bodyTooLarge
	unsupportedMediaType
	keyReused
	invalidValue
	amountExceedsHold
	amountExceedsDebit
	amountExceedsCapture
	currencyMismatch
	accountMismatch
	internal
	holdsUnsupported
	outcomeUnknown
	storageUnavailable
)

// typePrefix begins every problem's `type`: a reference into the document that
// this very process serves, so that it can be followed and cannot go stale.
const typePrefix = "/openapi.yaml#/x-problems/"

// problem is the document of f: the one place where refusals become statuses,
// codes and words. What went wrong inside is never part of it.
func (f refusal) problem() apitypes.Problem {
	switch f {
	case missingKey:
		return problem(http.StatusBadRequest, "MISSING_IDEMPOTENCY_KEY", "Idempotency-Key is missing",
			"Nothing was begun. Every POST but cancel by key needs an Idempotency-Key.")
	case invalidKey:
		return problem(http.StatusBadRequest, "INVALID_IDEMPOTENCY_KEY", "Idempotency-Key is not valid",
			"Nothing was begun. It must be given once, as 1 to 255 visible ASCII characters, bare or as an RFC 8941 quoted string.")
	case invalidDeadline:
		return problem(http.StatusBadRequest, "INVALID_DEADLINE", "Request-Deadline-Ms is not valid",
			"Nothing was begun. It must be given at most once, as a whole number of milliseconds from 0, in digits only.")
	case malformedRequest:
		return problem(http.StatusBadRequest, "MALFORMED_REQUEST", "The body is not the JSON that is asked for",
			"Nothing was begun. The members are named in errors.")
	case unauthenticated:
		return problem(http.StatusUnauthorized, "UNAUTHENTICATED", "The caller is not known",
			"Authorization must carry a bearer token that is known here.")
	case forbidden:
		return problem(http.StatusForbidden, "FORBIDDEN", "The caller may not do this",
			"The caller does not have the scope for it.")
	case notFound:
		return problem(http.StatusNotFound, "NOT_FOUND", "There is nothing here",
			"The paths are listed in /openapi.yaml.")
	case paymentNotFound:
		return problem(http.StatusNotFound, "PAYMENT_NOT_FOUND", "There is no such payment",
			"No payment of this caller is known by it. A request that is still on its way may yet make one.")
	case paymentNotYetDecided:
		return problem(http.StatusNotFound, "PAYMENT_NOT_YET_DECIDED", "The payment is being decided",
			"Nothing was begun by this request. Send it again after the time in Retry-After.")
	case operationNotFound:
		return problem(http.StatusNotFound, "OPERATION_NOT_FOUND", "There is no such operation",
			"No credit, capture, release or reversal of this caller is known by it. A request that is still on its way may yet make one.")
	case holdNotFound:
		return problem(http.StatusNotFound, "HOLD_NOT_FOUND", "There is no such hold",
			"Nothing was begun. No hold of this caller has this id.")
	case debitNotFound:
		return problem(http.StatusNotFound, "DEBIT_NOT_FOUND", "There is no such debit",
			"Nothing was begun. No debit of this caller has this id.")
	case methodNotAllowed:
		return problem(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "The method is not allowed here",
			"The methods that are allowed are in Allow.")
	case notAcceptable:
		return problem(http.StatusNotAcceptable, "NOT_ACCEPTABLE", "The answer would not be acceptable",
			"Nothing was begun. Answers are application/json and application/problem+json.")
	case requestInFlight:
		return problem(http.StatusConflict, "REQUEST_IN_FLIGHT", "This key is being decided right now",
			"Another request with this Idempotency-Key is being decided. Send this one again after the time in Retry-After to get its answer.")
	case holdNotActive:
		return problem(http.StatusConflict, "HOLD_NOT_ACTIVE", "The hold is not active",
			"Nothing was begun. The hold was declined, or it is released, being released or reversed.")
	case holdAlreadyCaptured:
		return problem(http.StatusConflict, "HOLD_ALREADY_CAPTURED", "The hold is captured",
			"Nothing was begun. The hold is captured or being captured. What was captured is given back by a credit.")
	case notRefundable:
		return problem(http.StatusConflict, "NOT_REFUNDABLE", "There is nothing to give back",
			"Nothing was begun. The debit was declined, cancelled or is being reversed, or the capture of the hold has not succeeded.")
	case paymentCancelled:
		return problem(http.StatusConflict, "PAYMENT_CANCELLED", "The payment was cancelled",
			"It was approved, and has since been cancelled by its key: what was taken is being given back. A new attempt is a new Idempotency-Key.")
	case bodyTooLarge:
		return problem(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", "The body is too large",
			"Nothing was begun. A body may have 16 KiB.")
	case unsupportedMediaType:
		return problem(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "The body is of another media type",
			"Nothing was begun. The body must be application/json, in UTF-8 and without a Content-Encoding.")
	case keyReused:
		return problem(http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED", "The key was used for a different request",
			"Nothing was begun. A new request needs a new Idempotency-Key.")
	case invalidValue:
		return problem(http.StatusUnprocessableEntity, "INVALID_VALUE", "A value is out of range",
			"Nothing was begun. The members are named in errors.")
	case amountExceedsHold:
		return problem(http.StatusUnprocessableEntity, "AMOUNT_EXCEEDS_HOLD", "The amount is more than the hold",
			"Nothing was begun. A capture may take at most what is held.")
	case amountExceedsDebit:
		return problem(http.StatusUnprocessableEntity, "AMOUNT_EXCEEDS_DEBIT", "The amount is more than the debit still has to give back",
			"Nothing was begun. The credits of a debit never add up to more than it.")
	case amountExceedsCapture:
		return problem(http.StatusUnprocessableEntity, "AMOUNT_EXCEEDS_CAPTURE", "The amount is more than the capture still has to give back",
			"Nothing was begun. The credits of a hold never add up to more than was captured.")
	case currencyMismatch:
		return problem(http.StatusUnprocessableEntity, "CURRENCY_MISMATCH", "The currency is another one",
			"Nothing was begun. A credit is in the currency of what it gives back.")
	case accountMismatch:
		return problem(http.StatusUnprocessableEntity, "ACCOUNT_MISMATCH", "The account is another one",
			"Nothing was begun. A credit goes to the account of what it gives back.")
	case holdsUnsupported:
		return problem(http.StatusNotImplemented, "HOLDS_UNSUPPORTED", "The configured wallet has no holds",
			"Nothing was begun. Use debits.")
	case outcomeUnknown:
		return problem(http.StatusServiceUnavailable, "OUTCOME_UNKNOWN", "The outcome is not known",
			"The request was begun, and whether its result is stored is not known. Send it again as it is. A payment can also be cancelled by its key.")
	case storageUnavailable:
		return problem(http.StatusServiceUnavailable, "STORAGE_UNAVAILABLE", "It cannot be read now",
			"Reading again is safe.")
	case none, internal:
	}
	return problem(http.StatusInternalServerError, "INTERNAL", "Something went wrong in SafeLedger",
		"What was asked for may have been done. Send a POST again as it is, or ask by key.")
}

func problem(status int, code, title, detail string) apitypes.Problem {
	return apitypes.Problem{Type: typePrefix + code, Title: title, Status: status, Detail: detail, Code: code}
}
