// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Inputs adds inputs to a fuzz target: those that go test once wrote to testdata/fuzz. They
// are in testdata/inputs.txt, below the line "-- NAME --" with the name of the target. A
// line has the values of one input, as that file spells them, separated by commas:
//
//	string("a"), []byte("b"), byte('\x01')
func Inputs(f *testing.F) {
	f.Helper()
	file, err := os.Open(filepath.Join("testdata", "inputs.txt"))
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	n, added, below := 0, 0, ""
	for lines.Scan() {
		n++
		if strings.HasPrefix(lines.Text(), "-- ") {
			below = lines.Text()
			continue
		}
		if below != "-- "+f.Name()+" --" {
			continue
		}
		input, err := valuesOf(lines.Text())
		if err != nil {
			f.Fatalf("%s, line %d: %v", file.Name(), n, err)
		}
		f.Add(input...)
		added++
	}
	if lines.Err() != nil || added == 0 {
		f.Fatalf("%s: %d inputs of %s, %v", file.Name(), added, f.Name(), lines.Err())
	}
}

// valuesOf parses a line of inputs.
func valuesOf(line string) (values []any, err error) {
	x, err := parser.ParseExpr("f(" + line + ")")
	if err != nil {
		return nil, err
	}
	call, ok := x.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return nil, fmt.Errorf("%q has no values", line)
	}
	for _, arg := range call.Args {
		conversion, ok := arg.(*ast.CallExpr)
		if !ok || len(conversion.Args) != 1 {
			return nil, fmt.Errorf(`want values like string("a"), separated by commas`)
		}
		literal, ok := conversion.Args[0].(*ast.BasicLit)
		if !ok {
			return nil, fmt.Errorf("a value that is no literal")
		}
		v, err := valueOf(conversion.Fun, literal.Value)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

func valueOf(kind ast.Expr, literal string) (any, error) {
	if _, ok := kind.(*ast.ArrayType); ok { // of bytes: the only one that a target can have
		s, err := strconv.Unquote(literal)
		return []byte(s), err
	}
	switch name := kind.(*ast.Ident); name.Name {
	case "string":
		return strconv.Unquote(literal)
	case "byte":
		r, _, _, err := strconv.UnquoteChar(strings.Trim(literal, "'"), '\'')
		return byte(r), err
	case "uint16":
		n, err := strconv.ParseUint(literal, 0, 16)
		return uint16(n), err
	default:
		return nil, fmt.Errorf("values of the type %s are not known: add it to valueOf", name.Name)
	}
}
