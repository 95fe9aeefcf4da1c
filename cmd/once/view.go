// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/view"
)

// describeStep returns the progress of a step.
func describeStep(s *view.Step) string {
	name := oneLine(s.Name)
	switch s.State {
	case "finished":
		kept := "kept"
		if s.Sealed {
			kept = "kept, sealed"
		}
		return fmt.Sprintf("%s: finished by %s at %s, %s %s", name, cmp.Or(s.FinishedBy, "an unknown source"), s.At.Format(time.TimeOnly+"Z"), size(s.ResultBytes), kept)
	case "begun":
		return fmt.Sprintf("%s: begun at %s and not finished (%s)", name, s.At.Format(time.TimeOnly+"Z"), s.Mode)
	}
	return name + ": not recorded"
}

// describeResult describes the stored result without its content.
func describeResult(v *view.Record) string {
	if v.Encoding == driver.EncodingOmitted {
		return "omitted: it could not be stored; retries get an error"
	}
	text := fmt.Sprintf("%s as %s", size(v.ResultBytes), oneLine(v.Encoding))
	switch {
	case v.Sealed:
		text += ":\nonly a program that has the operation's key can read it"
	case v.Outcome == nil:
		text += "; --result prints it"
	}
	return text
}

// short returns a record id with a shortened hash that still identifies the
// record.
func short(id idempotent.RecordID) string {
	return oneLine(id.Operation()) + "#" + id.KeyHash()
}

// shell quotes s for a shell.
func shell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// outcomeText returns the outcome as text: a response looks as in HTTP/1.1.
func outcomeText(o *view.Outcome) string {
	switch {
	case o.Final != nil:
		return fmt.Sprintf("%s: %s\n", o.Final.Code, o.Final.Message)
	case o.Response != nil:
		r := o.Response
		var b strings.Builder
		fmt.Fprintf(&b, "%d %s\n", r.Status, http.StatusText(r.Status))
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			for _, value := range r.Header[name] {
				fmt.Fprintf(&b, "%s: %s\n", name, value)
			}
		}
		return b.String() + "\n" + ended(r.Body+binary(r.BodyBase64))
	case o.Result != nil:
		var b bytes.Buffer
		json.Indent(&b, o.Result, "", "  ") // it is valid
		return ended(b.String())
	case utf8.Valid(o.Bytes):
		return ended(string(o.Bytes))
	}
	return ended(binary(o.Bytes))
}

func binary(data []byte) string {
	if data == nil {
		return ""
	}
	return fmt.Sprintf("(%s of binary data; use --json for base64)", size(len(data)))
}

// ended adds a newline to a text that is not empty and has none at its end.
func ended(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}
