package main

import (
	"go/scanner"
	gotoken "go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// modelNames are the names of examples/models.txt, and what each former name became.
type modelNames struct {
	names  []string
	former map[string]string
}

func readModelNames(t *testing.T) modelNames {
	t.Helper()
	m := modelNames{former: map[string]string{}}
	for line := range strings.Lines(page(t, "examples/models.txt")) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) < 2 {
			t.Fatalf("examples/models.txt: %q is no role with a name", line)
		}
		m.names = append(m.names, fields[1])
		for _, old := range fields[2:] {
			if m.former[old] != "" || slices.Contains(m.names, old) {
				t.Errorf("examples/models.txt: %s stands twice", old)
			}
			m.former[old] = fields[1]
		}
	}
	return m
}

var (
	// word is what may be the name of a model, with a provider before it.
	word = regexp.MustCompile(`[~@]?[A-Za-z0-9][A-Za-z0-9._/:@-]*`)
	// makersName matches names that makers of models give them, behind the names of providers and makers, and before endings such as
	// a variant's.
	makersName = regexp.MustCompile(`^(?:[~@]?[a-z0-9_-]+[:/.])*(?:gpt-(?:[0-9a-z]|oss)|chatgpt-|o[1-9]-(?:mini|pro|preview)|claude-[a-z0-9.-]*[0-9]|` +
		`claude-(?:opus|sonnet|haiku|fable)|gemini-[0-9a-z]|gemma-?[0-9]|llama-?[0-9]|codellama|(?:mi|mag|dev|pix|vox)(?:s?tral)-|mixtral|codestral|` +
		`qwen-?[0-9]|qwen-(?:max|plus|turbo)|qwq|deepseek-|grok-[0-9]|kimi-|glm-[0-9]|phi-?[0-9]|command-[ra]|nova-(?:pro|lite|micro)|` +
		`text-embedding-[0-9]|nomic-embed|mistral/|qwen/|moonshotai/|z-ai/|x-ai/|meta-llama/)`)
)

// notModels are words that look like models and are none: files of data sets, and addresses.
var notModels = regexp.MustCompile(`\.(jsonl|json|md|py)$|^(https?|//)|^www\.|\.(com|dev|ai|org|io)/`)

// The names of models in all examples are those of examples/models.txt. Run with -update to replace former names.
func TestModelNames(t *testing.T) {
	m := readModelNames(t)
	// known returns the name of a former one, the word itself where it is a name, or "" for a model that the table lacks.
	known := func(text string) string {
		_, unprefixed, _ := strings.Cut(text, ":") // name:model of a further provider
		for _, candidate := range []string{text, unprefixed} {
			if slices.Contains(m.names, candidate) {
				return text
			}
			if name := m.former[candidate]; name != "" {
				return strings.TrimSuffix(text, candidate) + name
			}
		}
		return ""
	}
	// check returns a text with the names of today, and reports others.
	check := func(where, text string) string {
		return word.ReplaceAllStringFunc(text, func(found string) string {
			model := strings.TrimRight(found, ".:/-")
			if notModels.MatchString(model) || !makersName.MatchString(model) {
				return found
			}
			switch name := known(model); {
			case name == "":
				t.Errorf("%s names %s, which examples/models.txt lacks: take a name of that table, or add a role", where, model)
			case name != model && *update:
				return name + found[len(model):]
			case name != model:
				t.Errorf("%s names %s, in whose place examples/models.txt has %s: run this test with -update", where, model, name)
			}
			return found
		})
	}
	for _, name := range modelPages(t) {
		before := page(t, name)
		var after string
		if strings.HasSuffix(name, ".go") {
			after = inLiterals(t, before, func(literal string) string { return check(name, literal) })
		} else {
			after = check(name, before)
		}
		if after != before {
			if err := os.WriteFile(filepath.Join("../..", name), []byte(after), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("the help", help(t))
}

// modelPages returns the files whose examples people copy: pages, settings, contracts, examples, the page, and the packages whose texts
// and messages people read.
func modelPages(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Dockerfile", ".env.example"}
	for _, dir := range []string{
		"docs", "api", "deploy", "examples", "web/assets", "cmd", "internal/cli", "internal/config", "internal/daemon", "internal/doors/httpapi",
		"internal/doors/mcpserver", "internal/spend", "internal/render", "internal/trial",
	} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && entry.Name() == "testdata" {
				return fs.SkipDir
			}
			ending := filepath.Ext(path)
			isText := slices.Contains([]string{".md", ".yaml", ".yml", ".json", ".cfg", ".conf", ".js", ".html", ".go", ".txt", ".jsonl"}, ending)
			if !entry.IsDir() && isText && !strings.HasSuffix(path, "_test.go") && entry.Name() != "models.txt" {
				name, err := filepath.Rel("../..", path)
				files = append(files, name)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// inLiterals returns the text of a Go file with its string literals replaced.
func inLiterals(t *testing.T, text string, replace func(string) string) string {
	t.Helper()
	var s scanner.Scanner
	file := gotoken.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), nil, 0)
	var b strings.Builder
	done := 0
	for {
		at, kind, literal := s.Scan()
		if kind == gotoken.EOF {
			return b.String() + text[done:]
		}
		if kind == gotoken.STRING {
			b.WriteString(text[done:file.Offset(at)])
			b.WriteString(replace(literal))
			done = file.Offset(at) + len(literal)
		}
	}
}

// The test of names finds models that the table lacks, and leaves other words alone.
func TestModelNamesAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		"gpt-5": true, "openai/gpt-4o": true, "~openai/gpt-latest": true, "openai:gpt-5": true, "claude:claude-opus-4-6": true,
		"anthropic/claude-opus-4.6": true, "anthropic.claude-opus-4-6-v1": true, "google/gemini-2.5-pro:free": true, "gemini-flash-latest": true,
		"mistral-large-latest": true, "deepseek-r1": true, "x-ai/grok-4": true, "llama3:8b": true, "qwen3:14b": true, "o3-mini": true,
		"bedrock:openai.gpt-oss-20b-1:0": true, "gpt-oss-120b": true, "local:gemma3:12b": true, "text-embedding-3-small": true,
		"meta-llama/llama-4": true, "chatgpt-latest": true, "azure/gpt-5": true,

		"sim:amber": false, "council/fast": false, "claude-code": false, "claude": false, "gateway:claude": false, "openai-node": false,
		"@langchain/openai": false, "mistral": false, "gemini": false, "a/m0": false, "anthropic/m2": false, "openai/v1": false,
	} {
		if got := makersName.MatchString(text); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
