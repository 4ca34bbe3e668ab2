package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// The command prints a row for the base world, and all goals. It also writes diffs with their manifests.
func TestRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-seeded", "4", "-clean", "4", "-worlds=false"}, &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if strings.Count(text, "| base |") != 1 || strings.Count(text, "\nreached: ")+strings.Count(text, "\nmissed: ") != 6 {
		t.Error(text)
	}
	dir := t.TempDir()
	if err := run(t.Context(), []string{"-seeded", "2", "-clean", "1", "-write", dir}, &out); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 6 {
		t.Errorf("%d files: %v", len(files), err)
	}
}
