package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/config"
	"github.com/google/go-cmp/cmp"
)

// Every file that names the version of a release names the first one of CHANGELOG.md.
func TestVersions(t *testing.T) {
	first := regexp.MustCompile(`(?m)^## ([0-9]+\.[0-9]+\.[0-9]+)`).FindStringSubmatch(page(t, "CHANGELOG.md"))
	if first == nil {
		t.Fatal("CHANGELOG.md has no version")
	}
	for name, places := range map[string][]string{
		"README.md":              {`VERSION=([0-9.]+) `, `ghcr\.io/councild/councild:([0-9.]+)`, `councild@v([0-9.]+)`, `councild[_-]([0-9.]+[0-9])`},
		"server.json":            {`"version": "([^"]+)"`, `ghcr\.io/councild/councild:([0-9.]+)`},
		"deploy/compose.yaml":    {`ghcr\.io/councild/councild:([0-9.]+)`},
		"deploy/kubernetes.yaml": {`ghcr\.io/councild/councild:([0-9.]+)`},
	} {
		for _, place := range places {
			found := firsts(regexp.MustCompile(place).FindAllStringSubmatch(page(t, name), -1))
			if len(found) == 0 {
				t.Errorf("%s has no version at %s", name, place)
			}
			for _, version := range found {
				if version != first[1] {
					t.Errorf("%s names %s, but the release is %s", name, version, first[1])
				}
			}
		}
	}
}

// The workflows have no right that a job does not ask for, name every action by its digest, and use the Go of the image.
func TestWorkflows(t *testing.T) {
	paths, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(paths) < 2 {
		t.Fatal(paths, err)
	}
	image := regexp.MustCompile(`GO_IMAGE=golang:([0-9.]+)`).FindStringSubmatch(page(t, "Dockerfile"))
	for _, path := range paths {
		name := filepath.Base(path)
		text := page(t, ".github/workflows/"+name)
		if !strings.Contains(text, "\npermissions: {}\n") {
			t.Errorf("%s gives rights to all jobs", name)
		}
		if strings.Contains(text, "pull_request_target") {
			t.Errorf("%s runs code of others with rights", name)
		}
		uses := firsts(regexp.MustCompile(`uses: (.*)\n`).FindAllStringSubmatch(text, -1))
		for _, action := range uses {
			if !strings.HasPrefix(action, "./") && !regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$`).MatchString(action) {
				t.Errorf("%s uses %s, which is no digest with its version", name, action)
			}
		}
		for _, version := range firsts(regexp.MustCompile(`go-version: "(.*)"`).FindAllStringSubmatch(text, -1)) {
			if version != image[1] {
				t.Errorf("%s has Go %s, but the Dockerfile has %s", name, version, image[1])
			}
		}
	}
	if !strings.Contains(page(t, ".github/workflows/ci.yml"), "- run: .ci/run\n") {
		t.Error("CI does not call .ci/run")
	}
}

// server.json is what the registry of MCP expects: its schema of 2025-12-11, the label that proves who owns the image,
// and settings that exist.
func TestRegistryEntry(t *testing.T) {
	type variable struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Default     string `json:"default"`
		Placeholder string `json:"placeholder"`
		Format      string `json:"format"`
		IsRequired  bool   `json:"isRequired"`
		IsSecret    bool   `json:"isSecret"`
	}
	var entry struct {
		Schema      string            `json:"$schema"`
		Name        string            `json:"name"`
		Title       string            `json:"title"`
		Description string            `json:"description"`
		Repository  map[string]string `json:"repository"`
		WebsiteURL  string            `json:"websiteUrl"`
		Version     string            `json:"version"`
		Packages    []struct {
			RegistryType         string              `json:"registryType"`
			Identifier           string              `json:"identifier"`
			RuntimeHint          string              `json:"runtimeHint"`
			Transport            map[string]string   `json:"transport"`
			PackageArguments     []map[string]string `json:"packageArguments"`
			EnvironmentVariables []variable          `json:"environmentVariables"`
		} `json:"packages"`
	}
	d := json.NewDecoder(strings.NewReader(page(t, "server.json")))
	d.DisallowUnknownFields()
	if err := d.Decode(&entry); err != nil {
		t.Fatal(err)
	}
	if n := len(entry.Description); n == 0 || n > 100 || len(entry.Title) > 100 {
		t.Errorf("the description has %d characters, 100 are allowed", n)
	}
	if !regexp.MustCompile(`^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$`).MatchString(entry.Name) {
		t.Errorf("the name is %q", entry.Name)
	}
	if !strings.Contains(page(t, "Dockerfile"), `io.modelcontextprotocol.server.name="`+entry.Name+`"`) {
		t.Errorf("the image has no label with the name %s", entry.Name)
	}
	p := entry.Packages[0]
	if p.RegistryType != "oci" || p.Transport["type"] != "stdio" || p.PackageArguments[0]["value"] != "mcp" {
		t.Errorf("the package is %+v", p)
	}
	settings := (config.Config{}).Settings()
	for _, v := range p.EnvironmentVariables {
		i := slices.IndexFunc(settings, func(s config.Setting) bool { return s.Name == v.Name })
		if i < 0 || settings[i].Secret != v.IsSecret || v.Default != "" && v.Default != settings[i].Default {
			t.Errorf("%s is no setting, or has another default, or is a secret", v.Name)
		}
	}
}

// The skill has the front matter of the Agent Skills format, and names tools that exist.
func TestSkill(t *testing.T) {
	text := page(t, "skills/councild/SKILL.md")
	parts := strings.SplitN(text, "---\n", 3)
	if len(parts) != 3 || parts[0] != "" {
		t.Fatal("there is no front matter")
	}
	keys := firsts(regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(parts[1], -1))
	if diff := cmp.Diff([]string{"name", "description", "license", "compatibility"}, keys); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(parts[1], "name: councild\n") {
		t.Error("the name is not that of the directory")
	}
	if len(parts[1]) > 1024 || strings.Count(parts[2], "\n") > 500 {
		t.Error("it is too long")
	}
	mcp := page(t, "docs/mcp.md")
	for _, tool := range firsts(regexp.MustCompile("`((?:council|judge)[a-z_]*)`").FindAllStringSubmatch(parts[2], -1)) {
		if !strings.Contains(mcp, "| `"+tool+"` |") {
			t.Errorf("there is no tool %s", tool)
		}
	}
	ask := help(t, "ask")
	for _, flag := range firsts(regexp.MustCompile(`(--[a-z-]+)`).FindAllStringSubmatch(parts[2], -1)) {
		if !strings.Contains(ask, flag) {
			t.Errorf("councild ask has no %s", flag)
		}
	}
}

// The links of llms.txt lead to files of the repository.
func TestLLMs(t *testing.T) {
	text := page(t, "llms.txt")
	if !strings.HasPrefix(text, "# councild\n\n> ") {
		t.Error("it does not begin with a title and a summary")
	}
	links := firsts(regexp.MustCompile(`\]\(https://github\.com/councild/councild/blob/main/([^)]+)\): `).FindAllStringSubmatch(text, -1))
	if len(links) < 15 || len(links) != strings.Count(text, "](") {
		t.Errorf("%d of %d links lead to files", len(links), strings.Count(text, "]("))
	}
	for _, name := range links {
		if _, err := os.Stat("../../" + name); err != nil {
			t.Error(err)
		}
	}
}
