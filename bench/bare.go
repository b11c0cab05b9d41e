package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// bareServer is the wallet call behind net/http and nothing else, as anybody would
// write it in an afternoon: it knows no callers, keys, budgets or metrics, keeps
// nothing, and promises nothing. It is what SafeLedger's own cost is measured by.
type bareServer struct {
	wallet string
	client *http.Client
}

type bareRequest struct {
	Account   string `json:"account"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Reference string `json:"reference"`
}

type bareAnswer struct {
	Kind     string `json:"kind"`
	Decision string `json:"decision"`
	bareRequest
	WalletID string `json:"walletId"`
}

// runBare serves at address until ctx ends.
func runBare(ctx context.Context, address, wallet string) error {
	s := &bareServer{wallet: wallet, client: &http.Client{
		Timeout: 3 * time.Second,
		Transport: &http.Transport{ // as many idle connections as tills, or most calls would open one
			MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 10 * time.Second,
			DialContext: (&net.Dialer{Timeout: 200 * time.Millisecond}).DialContext,
		},
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /debits", s.debit)
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	return listenAndServe(ctx, address, &http.Server{Handler: mux, ReadHeaderTimeout: 2 * time.Second, IdleTimeout: 75 * time.Second})
}

func (s *bareServer) debit(w http.ResponseWriter, r *http.Request) {
	var asked bareRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	id, err := s.call(r.Context(), r.Header.Get("Idempotency-Key"), asked)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(bareAnswer{Kind: "debit", Decision: "APPROVED", bareRequest: asked, WalletID: id}) // the till may have left
}

func (s *bareServer) call(ctx context.Context, key string, asked bareRequest) (id string, err error) {
	asked.Reference = key
	body, err := json.Marshal(asked)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.wallet+"/v2/debits", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := s.client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || response.StatusCode != http.StatusCreated || answer.ID == "" {
		return "", fmt.Errorf("the wallet answered %s", response.Status)
	}
	return answer.ID, nil
}

// listenAndServe serves until ctx ends.
func listenAndServe(ctx context.Context, address string, server *http.Server) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
		return server.Close()
	case err := <-served:
		return err
	}
}
