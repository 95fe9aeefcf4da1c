package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/idempotent"
)

func auditFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "audit", "", "append the audit line to this `FILE`\n(default: ONCE_AUDIT, or standard error)")
}

// auditLine is one line of JSON about a write or a refusal. It contains no key and
// no result.
type auditLine struct {
	Time     stamp               `json:"time"`
	Action   string              `json:"action"`
	User     string              `json:"user,omitempty"`
	Host     string              `json:"host,omitempty"`
	AWS      string              `json:"aws,omitempty"` // the user's ARN
	Store    string              `json:"store"`
	Record   idempotent.RecordID `json:"record,omitempty"`
	From     string              `json:"from,omitempty"`
	To       string              `json:"to,omitempty"`
	Evidence string              `json:"evidence,omitempty"`
	Step     string              `json:"step,omitempty"`
	Token    string              `json:"token,omitempty"` // of the attempt that was not executed
	Code     string              `json:"code,omitempty"`
	Codec    string              `json:"codec,omitempty"`
	Bytes    int                 `json:"bytes,omitempty"`
	SHA256   string              `json:"sha256,omitempty"`
	Count    int                 `json:"count,omitempty"`
	Reason   string              `json:"reason,omitempty"`
	Outcome  string              `json:"outcome"` // written, unchanged, refused or failed
	Error    string              `json:"error,omitempty"`
}

// auditor writes audit lines.
type auditor struct {
	env   *env
	to    io.Writer
	file  *os.File // nil: standard error
	store string
	aws   string
}

// openAudit opens the audit. Commands call it before the first write, so that nothing
// is done without an audit.
func (e *env) openAudit(ctx context.Context, file string, o *opened) (*auditor, error) {
	a := &auditor{env: e, to: e.stderr, store: o.name}
	if path := cmp.Or(file, e.getenv("ONCE_AUDIT")); path != "" {
		var err error
		if a.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return nil, fmt.Errorf("the audit cannot be written, so nothing was written: %w", err)
		}
		a.to = a.file
	}
	a.aws = o.who(ctx)
	return a, nil
}

// write appends a line. In a file it makes the line durable.
func (a *auditor) write(l auditLine) error {
	l.Time, l.User, l.Host, l.AWS, l.Store = stamp{a.env.now()}, a.env.user, a.env.host, a.aws, a.store
	line, err := json.Marshal(l)
	if err == nil {
		_, err = a.to.Write(append(line, '\n'))
	}
	if err == nil && a.file != nil {
		err = a.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("the audit could not be written: %w; the line is %s", err, line)
	}
	return nil
}

func (a *auditor) close() {
	if a.file != nil {
		a.file.Close()
	}
}
