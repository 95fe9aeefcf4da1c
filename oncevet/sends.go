// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/types"
	"net/http"
	"regexp"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// send is a call of a known client that leaves the process.
type send struct {
	HTTP bool   // by net/http
	What string // the call, for messages
	At   string // file and line
	// Verb is the method of a request. It is empty if it is unknown or changes
	// nothing, or if the parameter Param, counted from 1, decides it.
	Verb  string
	Param int
}

// writes reports whether s is known to change something.
func (s *send) writes() bool {
	return s.Verb != "" && s.Verb != http.MethodGet && s.Verb != http.MethodHead && s.Verb != http.MethodOptions
}

// appends reports whether s is a request that has a second effect if it is repeated:
// PUT and DELETE do not.
func (s *send) appends() bool {
	return s.HTTP && s.writes() && s.Verb != http.MethodPut && s.Verb != http.MethodDelete
}

var (
	// awsReads are beginnings of operations, and of helpers of the SDK, that change
	// nothing.
	awsReads  = regexp.MustCompile(`^(Get|List|Describe|Query|Scan|BatchGet|TransactGet|Head|Select|Lookup|Search|Receive|Assume|Encrypt|Decrypt|GenerateDataKey|Sign|Verify|Presign|Download|Wait)`)
	httpPost  = regexp.MustCompile(`^net/http\.(\(Client\)\.)?Post(Form)?$`)
	sqlExec   = regexp.MustCompile(`^database/sql\.\(\w+\)\.Exec(Context)?$`)
	sqlQuery  = regexp.MustCompile(`^database/sql\.\(\w+\)\.Query`)
	sqlWrites = regexp.MustCompile(`(?i)^\s*(insert|update|delete|merge|replace|call)\b`)
	awsClient = regexp.MustCompile(`^github\.com/aws/aws-sdk-go(-v2)?/service/`)
	// awsTelemetry are services whose entries nothing depends on.
	awsTelemetry = regexp.MustCompile(`/service/(cloudwatch|cloudwatchlogs|xray)$`)
)

// sendOf returns what a call sends, or nil.
func (v *vet) sendOf(call ssa.CallInstruction) *send {
	c := call.Common()
	f := callee(c)
	if f == nil {
		return nil
	}
	s := &send{What: short(call), At: v.at(call.Pos())}
	args := arguments(c)
	if !c.IsInvoke() && f.Signature().Recv() != nil {
		args = args[1:]
	}
	switch path := name(f); {
	case path == "net/http.(Client).Do" || c.IsInvoke() && isDo(f.Signature()):
		s.HTTP = true
		s.Verb, s.Param = v.verb(args[0], call.Parent())
	case httpPost.MatchString(path):
		s.HTTP, s.Verb = true, http.MethodPost
	case path == "net/smtp.SendMail", sqlExec.MatchString(path):
		s.Verb = "write"
	case sqlQuery.MatchString(path):
		for _, a := range args {
			if query, _ := text(a); sqlWrites.MatchString(query) {
				s.Verb = "write"
			}
		}
	case awsInput(f.Signature()) && !v.hasBody(c):
		if !awsReads.MatchString(f.Name()) {
			s.Verb = "write"
		}
	default:
		return nil
	}
	return s
}

// isDo reports whether a method has the signature of http.Client.Do.
func isDo(s *types.Signature) bool {
	return s.Params().Len() == 1 && s.Results().Len() == 2 &&
		isType(s.Params().At(0).Type(), "net/http.Request") && isType(s.Results().At(0).Type(), "net/http.Response")
}

// awsInput reports whether a method takes the input of an operation of the AWS SDK,
// as its clients and the interfaces of them do, and returns an error.
func awsInput(s *types.Signature) bool {
	if s.Results().Len() == 0 || !isError(s.Results().At(s.Results().Len()-1).Type()) {
		return false
	}
	for p := range s.Params().Variables() {
		n := named(p.Type())
		if n == nil || !strings.HasSuffix(n.Obj().Name(), "Input") {
			continue
		}
		if path := n.Obj().Pkg().Path(); awsClient.MatchString(path) {
			return s.Recv() != nil && !awsTelemetry.MatchString(path)
		}
	}
	return false
}

// hasBody reports whether a call is of a function of this package, which is followed.
func (v *vet) hasBody(c *ssa.CallCommon) bool {
	f := c.StaticCallee()
	return f != nil && len(v.source(f).Blocks) > 0
}

// verb returns the method of a request, or of a string that is a method. If a
// parameter of the function in decides it, verb returns its number from 1.
func (v *vet) verb(value ssa.Value, in *ssa.Function) (verb string, param int) {
	found := false
	origins(value, func(o ssa.Value) {
		if e, ok := o.(*ssa.Extract); ok {
			o = e.Tuple
		}
		w, p := "", 0
		switch o := o.(type) {
		case *ssa.Const:
			if o.IsNil() {
				return // beside an error
			}
			w, _ = text(o)
		case *ssa.Parameter:
			for i, other := range o.Parent().Params {
				if other == o && o.Parent() == in {
					p = i + 1
				}
			}
		case *ssa.Call:
			resolved := v.resolve(o, func() {
				switch name(callee(&o.Call)) {
				case "net/http.NewRequest", "net/http.NewRequestWithContext":
					w, p = v.verb(o.Call.Args[len(o.Call.Args)-3], in)
				case "net/http.(Request).WithContext", "net/http.(Request).Clone":
					w, p = v.verb(arguments(&o.Call)[0], in)
				}
			})
			if !resolved {
				return
			}
		}
		if found && (w != verb || p != param) {
			w, p = "", 0
		}
		verb, param, found = w, p, true
	})
	return verb, param
}

// written returns the first request of a call that changes something, or nil.
func (v *vet) written(call ssa.CallInstruction) *send {
	for _, s := range v.sends(call) {
		if s.writes() {
			return s
		}
	}
	return nil
}

// sends returns what a call sends, itself and through the functions that it runs,
// as far as this call decides the method.
func (v *vet) sends(call ssa.CallInstruction) (list []*send) {
	if s := v.sendOf(call); s != nil {
		return []*send{s}
	}
	c := call.Common()
	static := v.source(c.StaticCallee())
	for _, f := range v.runs(call) {
		for _, s := range v.summaryOf(f).Sends {
			if s.Param > 0 {
				if static != f {
					continue // unknown
				}
				resolved := *s
				resolved.Verb, resolved.Param = v.verb(arguments(c)[s.Param-1], call.Parent())
				s = &resolved
			}
			list = append(list, s)
		}
	}
	return list
}
