// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const (
	awsSDK    = "github.com/aws/aws-sdk-go-v2"
	awsLambda = "github.com/aws/aws-lambda-go"
	awsCDK    = "github.com/aws/aws-cdk-go"
	smithy    = "github.com/aws/smithy-go"
	jsii      = "github.com/aws/jsii-runtime-go"
	otel      = "go.opentelemetry.io/otel"
	brotli    = "github.com/andybalholm/brotli"
)

// allowed lists what a package may import besides the standard library.
// Dependencies point inward: stores and adapters know the core, the core knows no
// store. A name without a dot is a package of this repository.
var allowed = map[string][]string{
	"internal/attributejson":    {awsSDK},
	"internal/canonical":        {},
	"internal/errtype":          {},
	"internal/faults":           {"idempotent/driver"},
	"internal/httpform":         {"internal/sfv"},
	"internal/invariant":        {"idempotent", "idempotent/driver"},
	"internal/jsonpointer":      {"internal/canonical"},
	"internal/jsontypes":        {"internal/jsonpointer"},
	"internal/kit":              {"idempotent", "idempotent/driver", "internal/outage"},
	"internal/kit/engine":       {"dynamostore", "dynamostore/dynamotest", "internal/kit", awsSDK},
	"internal/kit/exchange":     {"idempotent", "lambdahttp"},
	"internal/logs":             {},
	"internal/page":             {},
	"internal/outage":           {},
	"internal/pathkey":          {},
	"internal/sfv":              {},
	"internal/tabledef":         {},
	"internal/timing":           {},
	"internal/view":             {"idempotent", "idempotent/driver", "internal/httpform"},
	"idempotent/driver":         {},
	"idempotent/event":          {"idempotent/driver", "internal/logs"},
	"idempotent":                {"idempotent/driver", "idempotent/event", "internal/canonical", "internal/errtype", "internal/jsontypes", "internal/logs", "internal/outage", "internal/timing", brotli},
	"idempotent/memstore":       {"idempotent/driver"},
	"idempotent/idempotenttest": {"idempotent", "idempotent/driver", "idempotent/event", "idempotent/memstore", "internal/errtype", "internal/faults", "internal/httpform", "internal/invariant", "internal/timing"},
	"lambdahttp":                {"idempotent", "idempotent/driver", "internal/canonical", "internal/errtype", "internal/httpform", "internal/jsonpointer", "internal/jsontypes", "internal/logs", "internal/pathkey", "internal/sfv", "internal/timing", "lambdahttp/internal/describe", awsLambda},
	"lambdahttp/policy":         {"idempotent", "lambdahttp", "lambdahttp/internal/describe"},
	"lambdabatch":               {"idempotent", "idempotent/driver", "internal/jsonpointer", "internal/logs", "internal/timing", awsLambda},
	"idempotencyclient":         {}, // for programs without this project
	"lambdadurable":             {"idempotent", awsSDK, smithy},
	"telemetry":                 {"idempotent/event"},
	"telemetry/audit":           {"idempotent", "idempotent/event", "internal/logs", "telemetry"},
	"telemetry/emf":             {"idempotent", "idempotent/event", "internal/logs", "telemetry"},
	// The program chooses the SDK of OpenTelemetry, if any.
	"telemetry/otelonce": {
		"idempotent", "idempotent/event", "lambdabatch", "telemetry", awsLambda,
		otel, otel + "/attribute", otel + "/codes", otel + "/metric", otel + "/propagation", otel + "/semconv", otel + "/trace",
	},
	// It matches the toolkit by name, so that it works with every version.
	"oncevet":             {"golang.org/x/tools/go"},
	"oncevet/cmd/oncevet": {"oncevet", "golang.org/x/tools/go/analysis"},
	"oncevet/gclplugin":   {"oncevet", "golang.org/x/tools/go/analysis", "github.com/golangci/plugin-module-register"},
	// What lambdahttp/policy renders.
	"lambdahttp/internal/describe": {},
	// A stand-in for tests.
	"lambdadurable/internal/durable": {},

	"dynamostore":            {"idempotent", "idempotent/driver", "internal/attributejson", "internal/tabledef", awsSDK, smithy},
	"dynamostore/dynamotest": {"dynamostore", "idempotent/idempotenttest", awsSDK, smithy},
	"dynamostore/powertools": {"idempotent", "idempotent/driver", awsSDK},
	"boltstore":              {"idempotent/driver", "go.etcd.io/bbolt"},
	"cmd/once": {
		"cmd/once/internal/console", "cmd/once/internal/operate", "cmd/once/internal/output", "dynamostore", "idempotent", "idempotent/driver", "idempotent/event",
		"internal/httpform", "internal/outage", "internal/view", awsSDK, smithy, "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term",
	},
	"cmd/once/internal/console": {"cmd/once/internal/operate", "cmd/once/internal/output", "idempotent", "idempotent/driver", "internal/page", "internal/view"},
	"cmd/once/internal/operate": {
		"boltstore", "cmd/once/internal/output", "dynamostore", "idempotent", "idempotent/driver", "idempotent/event",
		"internal/httpform", "internal/pathkey", "internal/tabledef", "internal/view", awsSDK, smithy,
	},
	"cmd/once/internal/output": {"dynamostore", "idempotent", "idempotent/driver", "internal/view"},
	"infra":                    {"dynamostore", "idempotent/event", "internal/tabledef", "telemetry", awsCDK, "github.com/aws/constructs-go", jsii},
}

// free are the trees that no package for users imports: they may import what they
// need, except the CDK.
var free = []string{"examples", "playground", "tests", "tools"}

// The CDK is heavy and runs on Node. Only these trees may import it, or a package
// that does, in tests too.
var cdkTrees = []string{"infra", "examples/charge-lambda/stack", "tests/deployed/verify"}

// imports holds the rules above.
var imports = &analysis.Analyzer{
	Name: "imports",
	Doc:  "report imports that point outward",
	Run: func(pass *analysis.Pass) (any, error) {
		pkg, _, _ := strings.Cut(pass.Pkg.Path(), " ") // a test variant: path [path.test]
		pkg = strings.TrimPrefix(strings.TrimSuffix(pkg, "_test"), root+"/")
		rule, listed := allowed[pkg]
		for _, file := range pass.Files {
			test := strings.HasSuffix(pass.Fset.File(file.FileStart).Name(), "_test.go")
			if !test && !listed && !anyTree(pkg, free) && !anyTree(pkg, cdkTrees) {
				pass.Reportf(file.Package, "%s has no rule in tools/lint/imports.go", pkg)
				return nil, nil
			}
			for _, spec := range file.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return nil, err
				}
				own, inside := strings.CutPrefix(path, root+"/")
				first, _, _ := strings.Cut(path, "/")
				switch {
				case carriesCDK(path, own) && !anyTree(pkg, cdkTrees):
					pass.Reportf(spec.Pos(), "%s depends on the CDK by %s", pkg, path)
				case test || !listed:
				case path == "testing" && !strings.HasSuffix(pkg, "test") && !within(pkg, "internal/kit"):
					pass.Reportf(spec.Pos(), "%s is not a package for tests", pkg)
				case !inside && !strings.Contains(first, "."): // the standard library
				case inside && !slices.Contains(rule, own), !inside && !anyTree(path, rule):
					pass.Reportf(spec.Pos(), "%s must not import %s, see tools/lint/imports.go", pkg, path)
				}
			}
		}
		return nil, nil
	},
}

func anyTree(pkg string, trees []string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool { return within(pkg, tree) })
}

func carriesCDK(path, own string) bool {
	return within(path, awsCDK) || anyTree(own, cdkTrees)
}
