// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
)

// Receipt is a mailed receipt.
type Receipt struct {
	ID    string `json:"id"`
	Order string `json:"order"`
	Key   string `json:"idempotency_key"`
}

// Service is the service. It is safe for concurrent use; the zero Service is
// ready and has mailed nothing.
type Service struct {
	mu     sync.Mutex
	mailed []Receipt
}

// maxBody limits a request's body, in bytes.
const maxBody = 64 << 10

// ServeHTTP serves the service's API.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/receipts":
		http.Error(w, "There is nothing at this address.", http.StatusNotFound)
	case r.Method == http.MethodGet:
		s.list(w)
	case r.Method == http.MethodPost:
		s.mail(w, r)
	default:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "Use POST to mail a receipt, or GET to list the receipts.", http.StatusMethodNotAllowed)
	}
}

func (s *Service) list(w http.ResponseWriter) {
	s.mu.Lock()
	mailed := append([]Receipt{}, s.mailed...) // an array, also if it is empty
	s.mu.Unlock()
	answer(w, http.StatusOK, mailed)
}

func (s *Service) mail(w http.ResponseWriter, r *http.Request) {
	want := Receipt{}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&want)
	want.Key = r.Header.Get("Idempotency-Key")
	if err != nil || want.Order == "" || want.Key == "" {
		http.Error(w, "A receipt needs an order, and an Idempotency-Key header.", http.StatusBadRequest)
		return
	}
	answer(w, http.StatusCreated, s.once(want))
}

// once returns the receipt of want's key, and mails it first if necessary.
func (s *Service) once(want Receipt) Receipt {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.mailed {
		if r.Key == want.Key {
			return r
		}
	}
	want.ID = "rc_" + strings.ToLower(rand.Text())
	s.mailed = append(s.mailed, want)
	return want
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // an error means that the caller has disconnected
}
