package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/config"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const (
	hidden = "hunter2-hunter2-hunter2"
	marker = "hunter2"
)

func TestSecretIsNeverShown(t *testing.T) {
	c := mustLoad(t, vars{
		"API_TOKENS": "ada:" + hidden, "API_KEY": hidden, "HASH_SECRET": hidden, "PROVIDERS": "p=http://localhost:1/v1", "API_KEY_P": hidden,
	})
	shown := map[string]string{
		"String":   c.APIKey.String(),
		"Settings": fmt.Sprint(c.Settings()),
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10.3s"} {
		shown["Secret "+verb] = fmt.Sprintf(verb, c.APIKey)
		shown["Config "+verb] = fmt.Sprintf(verb, c)
		shown["&Config "+verb] = fmt.Sprintf(verb, &c)
	}
	for name, v := range map[string]any{"Secret": c.APIKey, "Tokens": c.APITokens, "Config": c} {
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		shown["JSON "+name] = string(encoded)
		var buf bytes.Buffer
		slog.New(slog.NewTextHandler(&buf, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&buf, nil)).Info("x", "v", v)
		shown["slog "+name] = buf.String()
	}
	for how, text := range shown {
		for _, form := range []string{marker, fmt.Sprintf("%x", marker), fmt.Sprintf("%X", marker)} {
			if strings.Contains(text, form) {
				t.Errorf("%s shows the secret: %s", how, text)
			}
		}
		// Verbs that are wrong for the other fields are of no interest.
		if !strings.HasPrefix(how, "&Config") && !strings.Contains(text, "[redacted]") {
			t.Errorf("%s does not say that there is a secret: %s", how, text)
		}
	}
	for what, secret := range map[string]config.Secret{
		"API_TOKENS": c.APITokens[0].Secret, "API_KEY": c.APIKey, "HASH_SECRET": c.HashSecret, "API_KEY_P": c.Providers[0].APIKey,
	} {
		if secret.Reveal() != hidden {
			t.Errorf("%s does not reveal what it was given", what)
		}
	}
	if got := fmt.Sprintf("%s%v%q", config.Secret(""), config.Secret(""), config.Secret("")); got != "" {
		t.Errorf("an empty secret is printed as %q", got)
	}
}

func TestErrorsNeverShowASecret(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "file", marker+" two words")
	empty := write(t, dir, "empty", "\n")
	for name, v := range map[string]vars{
		"short token":           {"API_TOKENS": "hunter2"},
		"short named token":     {"API_TOKENS": "ada:hunter2"},
		"token with a colon":    {"API_TOKENS": "." + marker + ":0123456789abcdef"},
		"token twice":           {"API_TOKENS": "ada:" + hidden + ",bob:" + hidden},
		"token with a blank":    {"API_TOKENS": marker + " 0123456789abcdef"},
		"key with a blank":      {"API_KEY": marker + " x"},
		"key of a file":         {"API_KEY_FILE": file},
		"both forms":            {"API_KEY_FILE": file, "API_KEY": hidden},
		"key in place of file":  {"API_KEY_FILE": hidden},
		"empty file":            {"API_KEY_FILE": empty, "HASH_SECRET": hidden},
		"key of no provider":    {"API_KEY_P": hidden},
		"provider's key":        {"API_KEY_P": marker + " x", "PROVIDERS": "p=http://localhost:1/v1"},
		"misspelt name":         {"API_KEI": hidden},
		"password in URL":       {"BASE_URL": "https://me:hunter2@host/v1"},
		"key in URL":            {"BASE_URL": "https://host/v1?key=hunter2"},
		"password of provider":  {"PROVIDERS": "p=https://me:hunter2@host/v1"},
		"key in provider list":  {"PROVIDERS": "sk-Hunter2-hunter2"},
		"beside other problems": {"API_KEY": hidden, "HASH_SECRET": hidden, "API_TOKENS": hidden, "TIMEOUT": "1", "QUORUM": "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, v)
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error(), marker) {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	tokens := write(t, dir, "tokens", "0123456789abcdef,\n0123456789abcdeg\n")
	line := write(t, dir, "line", "sk-1\n")
	dos := write(t, dir, "dos", "sk-2\r\n")
	lines := write(t, dir, "lines", " a-secret-of-sixteen\n\n")

	c := mustLoad(t, vars{
		"API_TOKENS_FILE": tokens, "API_KEY_FILE": line, "PROVIDERS": "my-llm=http://localhost:1/v1", "API_KEY_MY_LLM_FILE": dos,
		"BIAS_CONSENT": "4", "HASH_SECRET_FILE": lines,
	})
	want := defaults()
	want.APITokens = config.Tokens{{Secret: "0123456789abcdef"}, {Secret: "0123456789abcdeg"}}
	want.APIKey = "sk-1"
	want.Providers = config.Providers{{Name: "my-llm", BaseURL: "http://localhost:1/v1", APIKey: "sk-2"}}
	want.BiasConsent = 4
	want.HashSecret = " a-secret-of-sixteen\n"
	if d := cmp.Diff(want.APIKey.Reveal(), c.APIKey.Reveal()); d != "" {
		t.Error(d)
	}
	if d := diff(want, c); d != "" {
		t.Error(d)
	}
}

func TestSecretFileProblems(t *testing.T) {
	dir := t.TempDir()
	good := write(t, dir, "good", "sk-1")
	empty := write(t, dir, "empty", " \n")
	nul := write(t, dir, "nul", "a\x00b")
	absent := filepath.Join(dir, "absent")
	tests := []struct {
		name string
		vars vars
		want string
	}{
		{
			"absent",
			vars{"API_KEY_FILE": absent},
			`LLM_COUNCIL_API_KEY_FILE: "` + absent +
				`" cannot be read (no such file or directory): write the path of a file that councild can read`,
		},
		{
			"a folder",
			vars{"API_TOKENS_FILE": dir},
			`LLM_COUNCIL_API_TOKENS_FILE: "` + dir + `" cannot be read (is a directory): write the path of a file that councild can read`,
		},
		{
			"no path",
			vars{"API_KEY_FILE": "absent"},
			`LLM_COUNCIL_API_KEY_FILE: names no file that councild can read (no such file or directory): write its whole path`,
		},
		{"empty", vars{"API_TOKENS_FILE": empty}, `LLM_COUNCIL_API_TOKENS_FILE: "` + empty + `" is empty: write the secret into it`},
		{"NUL", vars{"API_KEY_FILE": nul}, `LLM_COUNCIL_API_KEY_FILE: "` + nul + `" holds a NUL character: write the secret as text`},
		{
			"both",
			vars{"API_KEY": "k", "API_KEY_FILE": good},
			`LLM_COUNCIL_API_KEY_FILE: LLM_COUNCIL_API_KEY is set as well: unset one of them`,
		},
		{
			"no provider",
			vars{"API_KEY_X_FILE": good},
			"LLM_COUNCIL_API_KEY_X_FILE: LLM_COUNCIL_PROVIDERS names no provider with this key: add name=url there, or unset this variable",
		},
		{
			"consent 4, the secret unreadable",
			vars{"BIAS_CONSENT": "4", "HASH_SECRET_FILE": absent},
			`LLM_COUNCIL_HASH_SECRET_FILE: "` + absent +
				`" cannot be read (no such file or directory): write the path of a file that councild can read`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.vars)
			if d := cmp.Diff(tt.want, text(err)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]config.Bytes{
		"0": 0, "1": 1, "007": 7, "12B": 12, "1KB": 1000, "1kb": 1000, "3MB": 3e6, "1GB": 1e9, "1KiB": 1024, "256 KiB": 256 << 10,
		"8MiB": 8 << 20, "2gib": 2 << 30, "9223372036854775807": 1<<63 - 1, "8589934591GiB": 8589934591 << 30,
	} {
		var got config.Bytes
		if err := got.Set(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "MiB", "-1", "+1", "1.5MiB", "1e3", "1_000", "0x10", "1TiB", "1 M iB", "1MiB2", "9223372036854775808",
		"8589934592GiB", "١",
	} {
		b := config.Bytes(7)
		if err := b.Set(text); err == nil || b != 7 {
			t.Errorf("%q: got %d, %v, want an error and no change", text, b, err)
		}
	}
}

func TestBytesUnits(t *testing.T) {
	units := map[string]int64{"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<33-1).Draw(t, "n")
		for unit, factor := range units {
			var b config.Bytes
			if err := b.Set(fmt.Sprintf("%d%s", n, unit)); err != nil || int64(b) != n*factor {
				t.Errorf("%d%s: got %d, %v", n, unit, b, err)
			}
		}
	})
}

func FuzzBytes(f *testing.F) {
	for _, text := range []string{"0", "8MiB", "1 kb", "9223372036854775807", "99999999999999999999GiB", "-1", "é"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := config.Bytes(-1)
		err := b.Set(text)
		if (err == nil) != (b >= 0) {
			t.Errorf("%q: %d with error %v", text, b, err)
		}
	})
}

func FuzzProviders(f *testing.F) {
	for _, text := range []string{"a=http://h/v1", " a = http://h/v1?b=c , b", ",,=", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := config.Providers{{Name: "earlier"}}
		if err := p.Set(text); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if len(p) != strings.Count(text, ",")+1 {
			t.Fatalf("%q: %d providers", text, len(p))
		}
		again := make([]string, len(p))
		for i, provider := range p {
			again[i] = provider.Name + "=" + provider.BaseURL
		}
		var q config.Providers
		if err := q.Set(strings.Join(again, ",")); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p, q); d != "" {
			t.Errorf("%q is read differently once it is written out:\n%s", text, d)
		}
	})
}
