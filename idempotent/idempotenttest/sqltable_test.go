// SPDX-License-Identifier: Apache-2.0

package idempotenttest_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"
)

// table is a database with one table, for [database/sql.OpenDB]. It knows INSERT, and counts
// the rows with an ID. A transaction adds its rows when it commits.
type table struct{ ids []string }

func (t *table) Connect(context.Context) (driver.Conn, error) { return &session{table: t}, nil }
func (t *table) Driver() driver.Driver                        { return nil }

// session is a connection.
type session struct {
	table *table
	open  bool // a transaction is
	added []string
}

func (s *session) Prepare(query string) (driver.Stmt, error) { return statement{s, query}, nil }
func (s *session) Close() error                              { return nil }

func (s *session) Begin() (driver.Tx, error) {
	s.open = true
	return s, nil
}

func (s *session) Commit() error {
	if !s.open {
		return errors.New("no transaction")
	}
	s.table.ids, s.added, s.open = append(s.table.ids, s.added...), nil, false
	return nil
}

func (s *session) Rollback() error {
	s.added, s.open = nil, false
	return nil
}

type statement struct {
	session *session
	query   string
}

func (s statement) Close() error  { return nil }
func (s statement) NumInput() int { return strings.Count(s.query, "?") }

func (s statement) Exec(args []driver.Value) (driver.Result, error) {
	t := s.session
	t.added = append(t.added, args[0].(string))
	if !t.open {
		t.open = true
		return driver.RowsAffected(1), t.Commit()
	}
	return driver.RowsAffected(1), nil
}

func (s statement) Query(args []driver.Value) (driver.Rows, error) {
	n := 0
	for _, id := range slices.Concat(s.session.table.ids, s.session.added) {
		if id == args[0] {
			n++
		}
	}
	return &counted{n: int64(n)}, nil
}

// counted is one row with a count.
type counted struct {
	n    int64
	read bool
}

func (c *counted) Columns() []string { return []string{"count"} }
func (c *counted) Close() error      { return nil }

func (c *counted) Next(row []driver.Value) error {
	if c.read {
		return io.EOF
	}
	row[0], c.read = c.n, true
	return nil
}
