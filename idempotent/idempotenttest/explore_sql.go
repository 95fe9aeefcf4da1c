// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
)

// Connector returns a connector for [database/sql.OpenDB] that makes each statement and
// each COMMIT of a handler a point. inner connects to a database that runs inside the test.
// A fault closes the connection, and rolls back the open transaction, as a server does.
func (w *World) Connector(inner sqldriver.Connector) sqldriver.Connector {
	return sqlConnector{inner, w}
}

type sqlConnector struct {
	sqldriver.Connector
	w *World
}

func (c sqlConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &sqlConn{Conn: inner, w: c.w}, nil
}

// sqlConn is a connection. database/sql uses it from one goroutine at a time.
type sqlConn struct {
	sqldriver.Conn
	w    *World
	lost bool   // by a fault
	tx   *sqlTx // that is open
}

// point makes a call at a point. A fault loses the connection, and the server rolls back.
// If the process is killed, that waits for [World.kill]: a COMMIT can be on its way.
func (c *sqlConn) point(ctx context.Context, what string, call func() error) error {
	if c.lost {
		return sqldriver.ErrBadConn
	}
	const most = 40
	if what = strings.Join(strings.Fields(what), " "); len(what) > most {
		what = what[:most] + "…"
	}
	var answer error
	err := c.w.Do(ctx, sqlCall+what, func() error {
		answer = call()
		return answer
	})
	if c.lost = !errors.Is(err, answer); c.lost && !errors.Is(err, errKilled) {
		_ = c.rollback()
	}
	return err
}

func (c *sqlConn) rollback() error {
	if c.tx == nil {
		return nil
	}
	tx := c.tx
	c.tx = nil
	return tx.Tx.Rollback()
}

func (c *sqlConn) IsValid() bool {
	inner, ok := c.Conn.(sqldriver.Validator)
	return !ok || inner.IsValid() // database/sql closes a lost one after its next call
}

func (c *sqlConn) ResetSession(ctx context.Context) error {
	if inner, ok := c.Conn.(sqldriver.SessionResetter); ok {
		return inner.ResetSession(ctx)
	}
	return nil
}

func (c *sqlConn) CheckNamedValue(v *sqldriver.NamedValue) error {
	if inner, ok := c.Conn.(sqldriver.NamedValueChecker); ok {
		return inner.CheckNamedValue(v)
	}
	return sqldriver.ErrSkip
}

func (c *sqlConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (out sqldriver.Result, err error) {
	inner, ok := c.Conn.(sqldriver.ExecerContext)
	if !ok {
		return nil, sqldriver.ErrSkip
	}
	err = c.point(ctx, query, func() (err error) {
		out, err = inner.ExecContext(ctx, query, args)
		return err
	})
	return out, err
}

func (c *sqlConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (out sqldriver.Rows, err error) {
	inner, ok := c.Conn.(sqldriver.QueryerContext)
	if !ok {
		return nil, sqldriver.ErrSkip
	}
	err = c.point(ctx, query, func() (err error) {
		out, err = inner.QueryContext(ctx, query, args)
		return err
	})
	return out, err
}

func (c *sqlConn) BeginTx(ctx context.Context, o sqldriver.TxOptions) (sqldriver.Tx, error) {
	if c.lost {
		return nil, sqldriver.ErrBadConn
	}
	var tx sqldriver.Tx
	var err error
	if inner, ok := c.Conn.(sqldriver.ConnBeginTx); ok {
		tx, err = inner.BeginTx(ctx, o)
	} else if o != (sqldriver.TxOptions{}) {
		err = errors.New("idempotenttest: Explore: the database driver has no BeginTx, so it cannot have options of a transaction")
	} else {
		tx, err = interface{ Begin() (sqldriver.Tx, error) }(c.Conn).Begin() // as database/sql does
	}
	if err != nil {
		return nil, err
	}
	c.tx = &sqlTx{Tx: tx, conn: c, ctx: ctx}
	if p, _ := c.w.process(ctx); p != nil {
		c.w.mu.Lock()
		p.connections = append(p.connections, func() { _ = c.rollback() })
		c.w.mu.Unlock()
	}
	return c.tx, nil
}

func (c *sqlConn) PrepareContext(ctx context.Context, query string) (s sqldriver.Stmt, err error) {
	if inner, ok := c.Conn.(sqldriver.ConnPrepareContext); ok {
		s, err = inner.PrepareContext(ctx, query)
	} else {
		s, err = c.Prepare(query)
	}
	if err != nil {
		return nil, err
	}
	return &sqlStmt{Stmt: s, conn: c, query: query}, nil
}

type sqlTx struct {
	sqldriver.Tx
	conn *sqlConn
	ctx  context.Context
}

// Commit is a point. A COMMIT that does not arrive is rolled back.
func (t *sqlTx) Commit() error {
	return t.conn.point(t.ctx, "COMMIT", func() error {
		t.conn.tx = nil
		return t.Tx.Commit()
	})
}

func (t *sqlTx) Rollback() error {
	if t.conn.lost {
		return sqldriver.ErrBadConn
	}
	return t.conn.rollback()
}

type sqlStmt struct {
	sqldriver.Stmt
	conn  *sqlConn
	query string
}

func (s *sqlStmt) CheckNamedValue(v *sqldriver.NamedValue) error {
	if inner, ok := s.Stmt.(sqldriver.NamedValueChecker); ok {
		return inner.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}

func (s *sqlStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (out sqldriver.Result, err error) {
	err = s.conn.point(ctx, s.query, func() (err error) {
		if inner, ok := s.Stmt.(sqldriver.StmtExecContext); ok {
			out, err = inner.ExecContext(ctx, args)
			return err
		}
		out, err = s.Exec(valuesOf(args))
		return err
	})
	return out, err
}

func (s *sqlStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (out sqldriver.Rows, err error) {
	err = s.conn.point(ctx, s.query, func() (err error) {
		if inner, ok := s.Stmt.(sqldriver.StmtQueryContext); ok {
			out, err = inner.QueryContext(ctx, args)
			return err
		}
		out, err = s.Query(valuesOf(args))
		return err
	})
	return out, err
}

func valuesOf(args []sqldriver.NamedValue) []sqldriver.Value {
	values := make([]sqldriver.Value, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	return values
}
