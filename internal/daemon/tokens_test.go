package daemon

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/google/go-cmp/cmp"
)

// open requires tokens for an address that other machines can reach, with records in a
// directory and no token configured.
func open(t *testing.T, dir string) (tokens []httpapi.Token, log string, err error) {
	t.Helper()
	var out bytes.Buffer
	cfg := config.Config{Records: config.Records{BiasStore: filepath.Join(dir, "records.jsonl")}}
	tokens, err = requireTokens(t.Context(), cfg, nil, &net.TCPAddr{IP: net.IPv4zero}, slog.New(slog.NewJSONHandler(&out, nil)))
	return tokens, out.String(), err
}

// An address that other machines can reach is never left open.
func TestTokenForAnOpenAddress(t *testing.T) {
	for address, want := range map[string]int{"0.0.0.0": 1, "::": 1, "192.0.2.1": 1, "127.0.0.1": 0, "::1": 0, "127.0.0.9": 0} {
		var log bytes.Buffer
		cfg := config.Config{Records: config.Records{BiasStore: filepath.Join(t.TempDir(), "records.jsonl")}}
		tokens, err := requireTokens(t.Context(), cfg, nil, &net.TCPAddr{IP: net.ParseIP(address)}, slog.New(slog.NewJSONHandler(&log, nil)))
		if err != nil || len(tokens) != want {
			t.Errorf("%s: %d tokens, want %d: %v", address, len(tokens), want, err)
		}
		if want == 1 && (len(tokens[0].Secret) < 16 || strings.Count(log.String(), tokens[0].Secret) != 1) {
			t.Errorf("%s: the token is not logged once: %s", address, &log)
		}
	}
	cfg := config.Config{Service: config.Service{APITokens: config.Tokens{{Name: "ada", Secret: "given-by-the-user"}}}}
	tokens, err := requireTokens(t.Context(), cfg, nil, &net.TCPAddr{IP: net.IPv4zero}, slog.New(slog.DiscardHandler))
	if diff := cmp.Diff([]httpapi.Token{{Name: "ada", Secret: "given-by-the-user"}}, tokens); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestMadeTokenIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	first, _, err := open(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "api-token")
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file's mode is %v: %v", info.Mode(), err)
	}
	second, log, err := open(t, dir)
	if diff := cmp.Diff(first, second); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if strings.Contains(log, "chmod") {
		t.Errorf("a file of mode 0600 is warned of: %s", log)
	}
	if left, err := os.ReadDir(dir); len(left) != 1 || err != nil {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	if err := os.Chmod(path, 0o604); err != nil {
		t.Fatal(err)
	}
	third, log, err := open(t, dir)
	if diff := cmp.Diff(first, third); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if !strings.Contains(log, "chmod 600") || !strings.Contains(log, "-rw----r--") {
		t.Errorf("a file that others may read is not warned of: %s", log)
	}
}

func TestDamagedToken(t *testing.T) {
	token := strings.Repeat("A", 26)
	for name, content := range map[string]string{
		"empty": "", "cut": token[:25] + "\n", "longer": token + "A\n", "two lines": token + "\n" + token + "\n",
		"large": strings.Repeat("A", 2<<10), "other letters": strings.Repeat("a", 26) + "\n", "NUL": token[:25] + "\x00\n",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "api-token")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		tokens, _, err := open(t, dir)
		if err == nil {
			t.Errorf("%s: got %v", name, tokens)
			continue
		}
		for _, part := range []string{path + " holds no token", "remove the file", "LLM_COUNCIL_API_TOKENS"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is missing: %v", name, part, err)
			}
		}
		if content != "" && strings.Contains(err.Error(), "AAAA") {
			t.Errorf("%s: the error shows what is in the file: %v", name, err)
		}
		if kept, _ := os.ReadFile(path); string(kept) != content {
			t.Errorf("%s: the file was changed", name)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "api-token"), 0o700); err != nil {
		t.Fatal(err)
	}
	if tokens, _, err := open(t, dir); err == nil {
		t.Errorf("a directory: got %v", tokens)
	}
}

// Where the token cannot be kept, it holds for this run.
func TestTokenThatCannotBeKept(t *testing.T) {
	dangling := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	tokens, log, err := open(t, dangling)
	if err != nil || len(tokens) != 1 || !strings.Contains(log, "cannot be stored") {
		t.Errorf("%v, %v: %s", tokens, err, log)
	}
}
