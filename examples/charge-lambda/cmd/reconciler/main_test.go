// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
)

func TestNewHandler(t *testing.T) {
	good := map[string]string{"ONCE_TABLE": "once-records", "ONCE_METRICS_NAMESPACE": "Charges", "PROVIDER_URL": "https://provider.test/v1", "ONCE_EXHAUSTED_QUEUE_URL": "https://sqs.test/1/exhausted"}
	for name, value := range map[string]string{"": "", "ONCE_TABLE": "", "ONCE_METRICS_NAMESPACE": "", "PROVIDER_URL": "", "ONCE_EXHAUSTED_QUEUE_URL": "", "PROVIDER_URL ": "provider"} {
		for variable, otherwise := range good {
			t.Setenv(variable, otherwise)
		}
		if name != "" {
			t.Setenv(strings.TrimSpace(name), value)
		}
		h, err := newHandler(t.Context(), io.Discard)
		switch {
		case name == "" && (err != nil || h == nil):
			t.Errorf("got %v", err)
		case name != "" && (err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name))):
			t.Errorf("with %s=%q: got error %v, want one that names it", name, value, err)
		}
	}
}
