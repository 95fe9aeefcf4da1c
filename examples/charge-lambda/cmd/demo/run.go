package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/examples/charge-lambda/provider"
	"github.com/once-lambda/once/examples/charge-lambda/receipt"
	"github.com/once-lambda/once/idempotent"
)

// sideBySide is the number of orders that run at once.
const sideBySide = 4

// demo holds the services that survive the killed processes.
type demo struct {
	engine, tables, services string

	shop      *order.Shop
	store     *dynamostore.Store
	reconcile func(context.Context) (idempotent.Report, error)
}

// run runs the whole demo.
func run(ctx context.Context, args []string) error {
	if len(args) != 1 && os.Getenv("DYNAMODB_ENDPOINT") == "" {
		return errors.New("missing argument: the script that starts DynamoDB Local, localstack/dynamodb-local")
	}
	fmt.Println("starting DynamoDB Local (the first time it is downloaded) …")
	engine, stop, err := startEngine(ctx, strings.Join(args, ""))
	if err != nil {
		return err
	}
	defer stop()
	d, closeServices, err := newDemo(ctx, engine)
	if err != nil {
		return err
	}
	defer closeServices()
	var ends []*fate
	for _, f := range flows {
		fates, err := d.killAll(ctx, f)
		if err != nil {
			return err
		}
		if err := printFlow(os.Stdout, f, fates); err != nil {
			return err
		}
		ends = append(ends, fates...)
	}
	return printBooks(os.Stdout, ends)
}

// newDemo starts the services and creates the tables.
func newDemo(ctx context.Context, engine string) (d *demo, stop func(), err error) {
	dir, err := os.MkdirTemp("", "once-demo-")
	if err != nil {
		return nil, nil, err
	}
	ledger, err := provider.New(filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, errors.Join(err, ledger.Close(), os.RemoveAll(dir))
	}
	mux := http.NewServeMux()
	mux.Handle("/provider/", http.StripPrefix("/provider", ledger))
	mux.Handle("/mail/", http.StripPrefix("/mail", &receipt.Service{}))
	server := &http.Server{Handler: mux}
	go server.Serve(listener) // until it is closed
	stop = func() {
		server.Close()
		ledger.Close()
		os.RemoveAll(dir)
	}
	d = &demo{engine: engine, tables: "demo-" + strings.ToLower(rand.Text()) + "-", services: "http://" + listener.Addr().String()}
	d.shop, d.store, err = open(d.engine, d.tables, d.services, "")
	if err == nil {
		err = createTables(ctx, d.shop, d.store)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	d.reconcile = idempotent.Reconciler(d.shop.Guard, map[string]idempotent.ResolveFunc{order.AtOnce: d.shop.Resolve}, func(o *idempotent.ReconcileOptions) {
		o.Operations = []string{order.AtOnce}
		o.Backoff, o.MaxAttempts = reconcileAfter, 1000 // do not give up on a busy machine
	})
	return d, stop, nil
}

// killAll takes an order for each moment of a flow, and kills it there.
func (d *demo) killAll(ctx context.Context, f flow) ([]*fate, error) {
	fates, errs := make([]*fate, len(f.moments)), make([]error, len(f.moments))
	slots := make(chan struct{}, sideBySide)
	var group sync.WaitGroup
	for i, moment := range f.moments {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			fates[i], errs[i] = d.survive(ctx, f, moment)
			if errs[i] != nil {
				errs[i] = fmt.Errorf("%s, killed %s: %w", f.operation, moment, errs[i])
			}
		})
	}
	group.Wait()
	return fates, errors.Join(errs...)
}
