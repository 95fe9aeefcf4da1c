// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
)

// The second process replays the stored response of the first.
func Example() {
	dir, err := os.MkdirTemp("", "once")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	for process := 1; process <= 2; process++ {
		store, err := boltstore.Open(filepath.Join(dir, "once.db"))
		if err != nil {
			log.Fatal(err)
		}
		guard, err := idempotent.New(store)
		if err != nil {
			log.Fatal(err)
		}
		key := idempotent.Key{
			Operation:   "charge",
			Scope:       idempotent.Global,
			ID:          "8e03978e-40d5-43e8-bc93-6894a57f9324",
			Fingerprint: idempotent.FingerprintBytes([]byte("4200 usd")),
		}
		id, err := idempotent.Do(context.Background(), guard, key, func(context.Context) (string, error) {
			fmt.Println("charging")
			return "ch_1", nil
		})
		fmt.Println("process", process, "answers", id, err)
		if err := store.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// charging
	// process 1 answers ch_1 <nil>
	// process 2 answers ch_1 <nil>
}
