package crash

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/tests/engine"
)

// endpoint and store are the engine that all processes share.
var (
	endpoint string
	store    *dynamostore.Store
)

func runAll(m *testing.M) int {
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer tearDown()
	return m.Run()
}

var tearDown = func() {}

func setUp() error {
	url, stop, err := engine.DynamoDBLocal()
	if err != nil {
		return err
	}
	endpoint = url
	store, err = dynamostore.New(dynamostore.NewClient(engine.Config(endpoint)), "crash-"+strings.ToLower(rand.Text()))
	if err == nil {
		ledgerTable = store.Table()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = store.CreateTable(ctx)
	}
	if err != nil {
		stop()
		return err
	}
	p, closeProvider := newProvider()
	bank, providerURL = p, p.url
	tearDown = func() {
		closeProvider()
		stop()
	}
	return nil
}
