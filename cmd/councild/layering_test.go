package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/councild/councild"

// floors are the packages from the bottom to the top. A package imports only packages of
// lower floors; packages on one floor never import each other. A package of the bottom
// floor imports the standard library and the libraries that it owns.
var floors = [][]string{
	{
		".", "examples", "internal/council", "internal/disk", "internal/testkit/journaltest", "internal/testkit/pipenet", "internal/testkit/race", "internal/stat",
		"internal/testkit",
		"internal/llm/thinking",
	},
	{
		"internal/anonymize", "internal/ranking", "internal/bias", "internal/worth", "internal/runlog", "internal/spend", "internal/llm",
		"internal/store", "internal/telemetry", "internal/simllm", "internal/sessions/journal", "internal/doors/client",
		"internal/testkit/faultdisk", "internal/testkit/growth", "internal/testkit/biassim",
	},
	{
		"internal/disagreement", "internal/calls", "internal/stage1", "internal/stage2", "internal/stage3", "internal/decide",
		"internal/gate", "internal/render", "internal/sessions", "internal/consent",
	},
	{"internal/config", "internal/doors/httpapi", "internal/doors/mcpserver", "internal/pipeline", "internal/testkit/gatesim"},
	{"internal/doors/openai"},
	{"internal/daemon", "internal/trial", "internal/testkit/doortest"},
	{"internal/testkit/daemontest", "internal/cli"},
	{"cmd/councild", "internal/testkit/telemetrytest"},
}

// forbidden are imports that the floors would allow, but that would couple a run to its
// surroundings: a run is handed what it needs.
var forbidden = map[string][]string{
	"internal/stage1": {"internal/llm", "internal/store", "internal/config", "internal/telemetry"},
	"internal/stage2": {"internal/llm", "internal/store", "internal/config", "internal/telemetry"},
	"internal/stage3": {"internal/llm", "internal/store", "internal/config", "internal/telemetry"},
	"internal/decide": {"internal/llm", "internal/store", "internal/config", "internal/telemetry"},
	"internal/gate":   {"internal/llm", "internal/store", "internal/config", "internal/telemetry", "internal/simllm"},
	"internal/pipeline": {
		"internal/llm", "internal/store", "internal/config", "internal/telemetry", "internal/simllm",
		"internal/sessions", "internal/disagreement", "internal/gate",
	},
	"internal/doors/httpapi": {"internal/llm", "internal/store", "internal/config", "internal/telemetry", "internal/simllm"},
	"internal/doors/openai":  {"internal/llm", "internal/store", "internal/config", "internal/telemetry", "internal/simllm"},
	"internal/daemon":        {"internal/simllm"},
	"cmd/councild": {
		"internal/council", "internal/config", "internal/pipeline", "internal/doors/httpapi", "internal/store", "internal/llm",
		"internal/bias",
	},
}

// forTests begins the packages that only tests, and one another, import.
const forTests = "internal/testkit"

// owners are the libraries, each with the only package that may import it, and the package of
// internal/testkit that is named after it.
var owners = map[string]string{
	"github.com/sashabaranov/go-openai":     "internal/llm",
	"github.com/go-chi/chi/v5":              "internal/doors/httpapi",
	"github.com/kelseyhightower/envconfig":  "internal/config",
	"github.com/lmittmann/tint":             "internal/cli",
	"github.com/alecthomas/kong":            "internal/cli",
	"golang.org/x/term":                     "internal/cli",
	"golang.org/x/time":                     "internal/doors/httpapi",
	"github.com/google/uuid":                "internal/pipeline",
	"github.com/gofrs/flock":                "internal/disk",
	"github.com/klauspost/compress":         "internal/store",
	"github.com/prometheus/client_golang":   "internal/telemetry",
	"github.com/nats-io/nats.go":            "internal/sessions/journal",
	"github.com/nats-io/nats-server/v2":     "internal/sessions/journal",
	"github.com/minio/highwayhash":          "internal/sessions/journal",
	"go.opentelemetry.io":                   "internal/telemetry",
	"github.com/KimMachineGun/automemlimit": "internal/cli",
	"gonum.org/v1/gonum":                    "internal/stat",
	"go.yaml.in/yaml/v4":                    "internal/config",

	"github.com/santhosh-tekuri/jsonschema/v6": "internal/calls",
	"golang.org/x/text":                        "internal/calls",

	"github.com/modelcontextprotocol/go-sdk": "internal/doors/mcpserver",
	"github.com/google/jsonschema-go":        "internal/doors/mcpserver",
}

type listed struct {
	ImportPath string
	Imports    []string
	Module     *struct{ Path string }
}

// list returns the packages of this module.
func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Module", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestLayering(t *testing.T) {
	floor := map[string]int{}
	for i, names := range floors {
		for _, name := range names {
			floor[name] = i
		}
	}
	seen := map[string]bool{}
	used := map[string]bool{}
	for _, p := range list(t) {
		name, _ := ours(p.ImportPath)
		own, ok := floor[name]
		if !ok {
			t.Errorf("%s stands on no floor: give it one in this test and in ARCHITECTURE.md", name)
			continue
		}
		seen[name] = true
		for _, imported := range p.Imports {
			if inside, ok := ours(imported); ok {
				if below, known := floor[inside]; !known || below >= own {
					t.Errorf("%s imports %s, which is not on a lower floor", name, inside)
				}
				if slices.Contains(forbidden[name], inside) {
					t.Errorf("%s imports %s: it is to be handed what it needs", name, inside)
				}
				if strings.HasPrefix(inside, forTests) && !strings.HasPrefix(name, forTests) {
					t.Errorf("%s imports %s, which is for tests", name, inside)
				}
				continue
			}
			if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
				continue // the standard library
			}
			library := owned(imported)
			if library == "" {
				t.Errorf("%s imports %s, which has no owner: name one in this test", name, imported)
			} else if owner := owners[library]; name != owner && name != path.Join("internal/testkit", path.Base(owner)+"test") {
				t.Errorf("%s imports %s, which belongs to %s", name, imported, owner)
			}
			used[library] = true
		}
	}
	for name := range floor {
		if !seen[name] {
			t.Errorf("%s is on a floor, but there is no such package", name)
		}
	}
	for library := range owners {
		if !used[library] {
			t.Errorf("%s has an owner, but nobody imports it", library)
		}
	}
}

// ours returns the path of a package within this module, "." for the module's own. It returns false for another module.
func ours(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// owned returns the library with an owner that a package belongs to, or "".
func owned(path string) string {
	for library := range owners {
		if path == library || strings.HasPrefix(path, library+"/") {
			return library
		}
	}
	return ""
}
