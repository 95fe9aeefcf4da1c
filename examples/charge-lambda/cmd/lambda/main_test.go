// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
)

func TestNewHandler(t *testing.T) {
	for _, row := range []struct {
		env  map[string]string
		want string // part of the error
	}{
		{nil, "ONCE_TABLE"},
		{map[string]string{"ONCE_TABLE": "once-records"}, "PROVIDER_URL"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "provider"}, "PROVIDER_URL"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "PROFILE": "IETF"}, "ietf, stripe or uuid"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "CALLER": "tenant"}, "single or api-key"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "EVENTS": "sqs"}, "invalid EVENTS \"sqs\""},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1"}, ""},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "EVENTS": "rest", "CALLER": "api-key"}, ""},
	} {
		for _, name := range []string{"ONCE_TABLE", "PROVIDER_URL", "PROFILE", "CALLER", "EVENTS"} {
			t.Setenv(name, row.env[name])
		}
		h, err := newHandler(t.Context(), io.Discard)
		switch {
		case row.want == "" && err != nil, row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%v: got error %v, want %q in it", row.env, err, row.want)
		case row.want == "" && h == nil:
			t.Errorf("%v: no handler", row.env)
		}
	}
}
