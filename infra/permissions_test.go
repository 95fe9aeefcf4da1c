package infra_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/infra"
)

var permissionsBlock = regexp.MustCompile(`(?s)<!-- permissions -->\n.*<!-- /permissions -->\n`)

// The permissions in the guide are those that the constructs grant.
func TestPermissionsInTheGuide(t *testing.T) {
	var table strings.Builder
	table.WriteString("<!-- permissions -->\n| who | on | may |\n| --- | --- | --- |\n")
	for _, row := range []struct {
		who, on string
		actions []string
	}{
		{"handler", "the table", infra.HandlerActions},
		{"reconciler", "the table", infra.ReconcilerActions},
		{"", "its index, `…/index/" + dynamostore.IndexName + "`", infra.IndexActions},
	} {
		fmt.Fprintf(&table, "| %s | %s | `%s` |\n", row.who, row.on, strings.Join(row.actions, "`, `"))
	}
	table.WriteString("<!-- /permissions -->\n")
	path := filepath.Join("..", "docs", "deploy.md")
	guide, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !permissionsBlock.Match(guide) {
		t.Fatal("the guide has no place for the permissions")
	}
	wantUpToDate(t, path, string(permissionsBlock.ReplaceAllLiteral(guide, []byte(table.String()))))
}
