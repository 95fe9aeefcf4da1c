// SPDX-License-Identifier: Apache-2.0

// Oncevet reports mistakes in handlers that use the toolkit once. The go command
// runs it for each package:
//
//	go install github.com/once-lambda/once/oncevet/cmd/oncevet@latest
//	go vet -vettool=$(which oncevet) ./...
//
// Package oncevet lists the checks.
package main

import (
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/once-lambda/once/oncevet"
)

func main() { unitchecker.Main(oncevet.Analyzer) }
