// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/events"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/page"
	"github.com/once-lambda/once/playground/gateway"
	"github.com/once-lambda/once/playground/provider"
	"github.com/once-lambda/once/playground/settle"
	"github.com/once-lambda/once/playground/web"
	"github.com/once-lambda/once/playground/worker"
)

// run serves the example until ctx ends. Its errors state what to do.
func run(ctx context.Context, getenv func(string) string, stdout, stderr io.Writer) (err error) {
	c, err := readConfig(getenv)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)))
	if err != nil {
		return listenError(c.port, err)
	}
	defer listener.Close()
	address := "http://" + listener.Addr().String()

	logger := newLogger(stderr)
	if err := makeData(c.data); err != nil {
		return err
	}
	store, where, closeStore, err := openStore(ctx, &c, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()

	routes := map[string]http.Handler{}
	providerURL, booked := c.providerURL, "none, because PROVIDER_URL is set"
	slow := func(o *provider.Options) { o.Slow = provider.SlowFor(c.slow) }
	var ledger func() []provider.Charge
	if providerURL == "" {
		standIn, err := provider.New(c.ledgerPath(), slow)
		if err != nil {
			return err
		}
		defer standIn.Close()
		maps.Copy(routes, standIn.Routes("/provider"))
		providerURL, booked, ledger = address+"/provider", c.ledgerPath(), standIn.Charges
	}
	without, err := provider.New(c.unguardedLedgerPath(), slow)
	if err != nil {
		return err
	}
	defer without.Close()
	maps.Copy(routes, without.Routes(web.Without+"/provider"))

	history := web.NewHistory(store)
	workers := worker.New(workerCommand(&c, providerURL, stderr), func(pid int) driver.Store {
		return history.By(fmt.Sprintf("Written by worker %d.", pid))
	})
	defer workers.Close()
	unguarded := worker.New(workerCommand(&c, address+web.Without+"/provider", stderr, withoutOnce), func(int) driver.Store {
		return memstore.New() // a disabled guard does not use it
	})
	defer unguarded.Close()
	apis, err := mount(routes, &c, &web.Playground{
		Profile: c.profile, Store: store, History: history, Exchanges: &web.Exchanges{}, Done: ctx.Done(),
		With: web.Half{Workers: workers, Ledger: ledger}, Without: web.Half{Workers: unguarded, Ledger: without.Charges},
	}, providerURL, logger)
	if err != nil {
		return err
	}

	fmt.Fprintf(stdout, "listening on %s\npid:     %d\nprofile: %s\nstore:   %s\nledger:  %s\n\n%s",
		address, os.Getpid(), c.profile, where, booked, try(address, c.profile))
	return serve(ctx, listener, handler(routes, listener.Addr()), apis, c.timeout, stdout)
}

// handler returns what listens at an address: the handlers of routes, behind the check
// of every request.
func handler(routes map[string]http.Handler, at net.Addr) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.Handle(pattern, h)
	}
	_, port, _ := net.SplitHostPort(at.String()) // a listener's address has one
	return page.Guard(mux, "127.0.0.1:"+port, "localhost:"+port, "[::1]:"+port)
}

// mount adds the function behind its gateway, the same without the guard, the operator's
// endpoint, the provider's webhook and the pages to routes. It returns the gateways.
func mount(routes map[string]http.Handler, c *config, p *web.Playground, providerURL string, logger *slog.Logger) (apis []*gateway.Gateway, err error) {
	client, err := charge.NewClient(providerURL)
	if err != nil {
		return nil, fmt.Errorf("PROVIDER_URL: %w", err)
	}
	store := p.History.By("Written by the operator's endpoint.")
	guard, err := newGuard(store, logger)
	if err != nil {
		return nil, err
	}
	webhook, err := newGuard(p.History.By("Written by the provider's webhook."), logger)
	if err != nil {
		return nil, err
	}
	for path, half := range map[string]*web.Half{"": &p.With, web.Without: &p.Without} {
		api, err := gateway.New(half.Workers.Invoke, func(o *gateway.Options) {
			o.Timeout = c.timeout
			o.Logger = logger
		})
		if err != nil {
			return nil, err
		}
		apis = append(apis, api)
		routes[path+"/"] = p.Exchanges.Middleware(http.StripPrefix(path, api))
	}
	routes["/admin/resolve"] = p.Exchanges.Middleware(settle.Admin(&settle.Resolver{Guard: guard, Store: store, Provider: client}, logger))
	routes["POST /webhooks/provider"] = &settle.Webhook{Guard: webhook, Provider: client}
	if routes[policyPath], err = policyPage(c); err != nil {
		return nil, err
	}
	maps.Copy(routes, p.Routes())
	return apis, nil
}

func newGuard(store driver.Store, logger *slog.Logger, optFns ...func(*idempotent.Options)) (*idempotent.Guard, error) {
	return idempotent.New(store, append(optFns, func(o *idempotent.Options) {
		o.Logger = logger
		o.Observer = event.LogObserver(logger)
	})...)
}

// serve serves until ctx ends, and then waits for running requests.
func serve(ctx context.Context, listener net.Listener, h http.Handler, apis []*gateway.Gateway, timeout time.Duration, stdout io.Writer) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	fmt.Fprintln(stdout, "\nstopping: waiting for running requests")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+time.Second)
	defer cancel()
	err := server.Shutdown(ctx)
	for _, api := range apis {
		err = errors.Join(err, api.Drain(ctx))
	}
	if err != nil {
		return fmt.Errorf("some requests did not end in time; resolve their keys as after a crash: %w", err)
	}
	return nil
}

func listenError(port int, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("port %d of 127.0.0.1 is taken; set PORT to another one, for example PORT=%d", port, port%65535+1)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("no permission to listen on port %d; set PORT to one above 1023", port)
	}
	return fmt.Errorf("cannot listen on port %d: %w; set PORT to another one", port, err)
}

// try returns the commands to paste into a second terminal.
func try(address, profile string) string {
	key := "8e03978e-40d5-43e8-bc93-6894a57f9324"
	if profile == "ietf" {
		key = `"` + key + `"`
	}
	return fmt.Sprintf(`Open %s in a browser, or try it here, twice:

curl -i %s/charges \
  -H 'Idempotency-Key: %s' \
  -H 'Content-Type: application/json' \
  -d '{"amount":4200,"currency":"usd","customer":"cus_1"}'

and count what the provider booked:

curl %s/provider/charges

`, address, address, key, address)
}

// tablePatience limits how long the start waits for DynamoDB.
const tablePatience = time.Minute

// openStore opens the store that the environment selects. The returned close
// function is never nil.
func openStore(ctx context.Context, c *config, logger *slog.Logger) (store driver.Store, where string, closeStore func() error, err error) {
	closeStore = func() error { return nil }
	if c.table != "" {
		store, err = openTable(ctx, c)
		return store, "table " + c.table, closeStore, err
	}
	file, err := boltstore.Open(c.storePath())
	if err != nil {
		return nil, "", closeStore, fmt.Errorf("%w. DATA names the directory", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go purge(ctx, file, logger)
	return file, c.storePath(), func() error {
		cancel()
		return file.Close()
	}, nil
}

// openTable opens the table, which has to exist and have the right schema.
func openTable(ctx context.Context, c *config) (driver.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, tablePatience)
	defer cancel()
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return nil, fmt.Errorf("ONCE_TABLE is set but no AWS region is; set AWS_REGION, for example to us-east-1")
	}
	store, err := dynamostore.Open(ctx, func(o *dynamostore.Options) { o.Client = dynamostore.NewClient(cfg) })
	if err != nil {
		return nil, err
	}
	if c.createTable {
		err = store.CreateTable(ctx)
	} else {
		err = store.Check(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\nONCE_TABLE names the table. If it is missing, ONCE_CREATE_TABLE=1 creates it; if DynamoDB cannot be reached, check AWS_REGION, AWS_ENDPOINT_URL and the credentials", err)
	}
	return store, nil
}

// purge deletes expired records every hour, so that the file does not grow
// without limit.
func purge(ctx context.Context, file *boltstore.Store, logger *slog.Logger) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if _, err := file.Purge(ctx, now); err != nil && ctx.Err() == nil {
				logger.Error("playground: expired records were not deleted", "error", err)
			}
		}
	}
}

// makeData creates the directory for the store's file and the ledger.
func makeData(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot create the directory for the data: %w; set DATA to another one", err)
	}
	return nil
}

// withoutOnce is the argument of a worker whose guard is disabled.
const withoutOnce = "without-once"

// workerCommand returns the command that starts this program again, as a worker.
func workerCommand(c *config, providerURL string, stderr io.Writer, args ...string) func() *exec.Cmd {
	return func() *exec.Cmd {
		self, err := os.Executable()
		if err != nil {
			self = os.Args[0]
		}
		cmd := exec.Command(self, append([]string{"worker"}, args...)...)
		cmd.Env = append(os.Environ(), "PROFILE="+c.profile, "PROVIDER_URL="+providerURL)
		cmd.Stderr = stderr
		return cmd
	}
}

// work handles requests as a worker of the process that started it. It serves the
// function as cmd/lambda of the example does, with the store of that process.
func work(getenv func(string) string, logger *slog.Logger, guarded bool) error {
	keys, err := profileKeys(getenv("PROFILE"))
	if err != nil {
		return err
	}
	client, err := charge.NewClient(getenv("PROVIDER_URL"))
	if err != nil {
		return err
	}
	if !guarded {
		http.DefaultTransport = naming{http.DefaultTransport} // which the client uses
	}
	return worker.Serve(func(store driver.Store) (worker.Handler, error) {
		guard, err := newGuard(store, logger, func(o *idempotent.Options) { o.Disabled = !guarded })
		if err != nil {
			return nil, err
		}
		function := charge.New(guard, client, keys)
		return func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			return function(context.WithValue(ctx, recordKey{}, charge.RecordIDOf(web.KeyOf(&ev))), ev)
		}, nil
	})
}

type recordKey struct{}

// naming is a transport that names in the metadata of each charge the record that a
// guard would have written, as the function does behind its guard. So the charges of a
// key can be compared with and without once.
type naming struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (n naming) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost {
		return n.next.RoundTrip(r)
	}
	defer r.Body.Close()
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	body["metadata"] = map[string]any{charge.MetadataRecord: r.Context().Value(recordKey{})}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	named := r.Clone(r.Context())
	named.GetBody, named.ContentLength = nil, int64(len(text))
	named.Body = io.NopCloser(bytes.NewReader(text))
	return n.next.RoundTrip(named)
}

func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
