// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
)

func TestNewHandler(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		env  map[string]string
		want string // part of the error
	}{
		{nil, "ONCE_TABLE is not set"},
		{map[string]string{"ONCE_TABLE": "once-records"}, "PROVIDER_URL is not set"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "provider"}, "PROVIDER_URL"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "PROFILE": "IETF"}, "ietf, stripe or uuid"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "CALLER": "tenant"}, "single or api-key"},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "EVENTS": "sqs"}, "invalid EVENTS \"sqs\""},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1"}, ""},
		{map[string]string{"ONCE_TABLE": "once-records", "PROVIDER_URL": "https://provider.test/v1", "EVENTS": "rest", "CALLER": "api-key"}, ""},
	} {
		h, err := newHandler(t.Context(), func(name string) string { return row.env[name] }, io.Discard)
		switch {
		case row.want == "" && err != nil, row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%v: got error %v, want %q in it", row.env, err, row.want)
		case row.want == "" && h == nil:
			t.Errorf("%v: no handler", row.env)
		}
	}
}
