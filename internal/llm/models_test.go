package llm

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

func TestModels(t *testing.T) {
	list := func(ids ...string) []ListedModel {
		models := []ListedModel{}
		for _, id := range ids {
			models = append(models, ListedModel{ID: id})
		}
		return models
	}
	day := func(text string) time.Time {
		at, err := time.Parse(time.DateOnly, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	ends := func(id, text string) ListedModel { return ListedModel{ID: id, Ends: day(text)} }
	for name, tt := range map[string]struct {
		status int
		body   string
		want   ModelList
		code   council.FailureCode
	}{
		"a list":              {200, `{"object":"list","data":[{"id":"a"},{"id":"b","x":1},{}]}`, ModelList{Models: list("a", "b")}, ""},
		"a bare list":         {200, `[{"id":"a"}]`, ModelList{Models: list("a")}, ""},
		"an empty list":       {200, `{"data":[]}`, ModelList{Models: list()}, ""},
		"no data":             {200, `{"object":"list","data":null}`, ModelList{Models: list()}, ""},
		"no data, no object":  {200, `{"data":null}`, ModelList{Models: list()}, ""},
		"data left out":       {200, `{"object":"list"}`, ModelList{Models: list()}, ""},
		"an empty bare list":  {200, `[]`, ModelList{Models: list()}, ""},
		"a page":              {200, `<html>hello</html>`, ModelList{}, council.FailBadResponse},
		"another object":      {200, `{"status":"ok"}`, ModelList{}, council.FailBadResponse},
		"null":                {200, `null`, ModelList{}, council.FailBadResponse},
		"a number":            {200, `{"data":7}`, ModelList{}, council.FailBadResponse},
		"nothing":             {200, ``, ModelList{}, council.FailBadResponse},
		"control characters":  {200, `{"data":[{"id":"\u001b[2J"}]}`, ModelList{Models: list("\x1b[2J")}, ""},
		"deep nesting":        {200, strings.Repeat("[", 100_000), ModelList{}, council.FailBadResponse},
		"more than the limit": {200, `{"data":[{"id":"` + strings.Repeat("x", 1<<20) + `"}]}`, ModelList{}, council.FailTooLarge},
		"a wrong key":         {401, `{"error":{"message":"no key sk-very-secret"}}`, ModelList{}, council.FailUnauthorized},
		"no list":             {404, `not found`, ModelList{}, council.FailUnknownModel},
		"a redirect":          {302, ``, ModelList{}, council.FailRejected},
		"out of order":        {503, ``, ModelList{}, council.FailUnavailable},

		"the last day, as OpenAI says it": {
			200,
			`{"data":[{"id":"a","shutdown_date":"2026-12-11"},{"id":"b","shutdown_date":null},{"id":"c"}]}`,
			ModelList{Models: append([]ListedModel{ends("a", "2026-12-11")}, list("b", "c")...)},
			"",
		},
		"as OpenRouter and Mistral say it": {
			200,
			`{"data":[{"id":"a","expiration_date":"2026-12-31"},{"id":"b","deprecation":"2026-08-31T12:00:00Z"}]}`,
			ModelList{Models: []ListedModel{ends("a", "2026-12-31"), ends("b", "2026-08-31")}},
			"",
		},
		"in Unix seconds, as Azure says it, and in other forms": {
			200,
			`{"data":[{"id":"a","deprecation":{"fine_tune":1,"inference":1796947200}},{"id":"b","shutdown_date":1796947200},` +
				`{"id":"c","shutdown_date":1796947200123},{"id":"d","shutdown_date":"1796947200"},{"id":"e","shutdown_date":"2026-12-11T00:00:00+01:00"}]}`,
			ModelList{Models: []ListedModel{
				ends("a", "2026-12-11"), ends("b", "2026-12-11"), ends("c", "2026-12-11"), ends("d", "2026-12-11"), ends("e", "2026-12-11"),
			}},
			"",
		},
		"no day": {
			200,
			`{"data":[{"id":"a","shutdown_date":"soon"},{"id":"b","shutdown_date":true},{"id":"c","shutdown_date":-1},` +
				`{"id":"d","shutdown_date":0},{"id":"e","shutdown_date":"2026-13-45"},{"id":"f","deprecation":{}},{"id":"g","shutdown_date":[1]}]}`,
			ModelList{Models: list("a", "b", "c", "d", "e", "f", "g")},
			"",
		},
		"aliases": {
			200,
			`{"data":[{"id":"a-2508","aliases":["a-latest",7,"a","a-2508"]},{"id":"b","aliases":"x","canonical_slug":"b-0613"}]}`,
			ModelList{Models: []ListedModel{{ID: "a-2508", Aliases: []string{"a-latest", "a"}}, {ID: "b", Aliases: []string{"b-0613"}}}},
			"",
		},
		"the first page of Anthropic":  {200, `{"data":[{"id":"a"}],"has_more":true,"last_id":"a"}`, ModelList{Models: list("a"), Partial: true}, ""},
		"the only page of Anthropic":   {200, `{"data":[{"id":"a"}],"has_more":false}`, ModelList{Models: list("a")}, ""},
		"the first page of OpenRouter": {200, `{"data":[{"id":"a"}],"links":{"next":"/api/v1/models?offset=500"}}`, ModelList{Models: list("a"), Partial: true}, ""},
		"the last page of OpenRouter":  {200, `{"data":[{"id":"a"}],"links":{"next":null}}`, ModelList{Models: list("a")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := served(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer sk-very-secret" {
					t.Errorf("asked %s %s with %q", r.Method, r.URL.Path, r.Header.Get("Authorization"))
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			got, err := c.Models(t.Context(), "")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			failure := council.AsFailure(err)
			if (tt.code == "") != (failure == nil) || failure != nil && failure.Code != tt.code {
				t.Errorf("failure %v, want %s", err, tt.code)
			}
			if failure != nil && strings.Contains(failure.Message, "sk-very-secret") {
				t.Errorf("the key is told: %v", err)
			}
		})
	}
	l := ModelList{Models: []ListedModel{{ID: "a-2508", Aliases: []string{"a"}, Ends: day("2026-12-11")}}}
	if m, ok := l.Find("a-2508"); !ok || m.Ends.IsZero() {
		t.Errorf("a listed model: %v, %v", m, ok)
	}
	if m, ok := l.Find("a"); !ok || !m.Ends.IsZero() {
		t.Errorf("an alias has an end: %v, %v", m, ok)
	}
	if _, ok := l.Find("b"); ok {
		t.Error("a model that is not listed was found")
	}
}

// served returns a client of a provider whose base URL is below /v1.
func served(t *testing.T, serve http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	o := fakeOptions()
	o.Providers[0].BaseURL, o.Providers[0].APIKey = server.URL+"/v1", "sk-very-secret"
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A key is tested where the provider has an address for that. Whatever else answers there says nothing of the key.
func TestTestKey(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
		want   Key
		err    string
	}{
		"a key":               {200, `{"data":{"label":"sk-or-v1-...","limit":null,"limit_remaining":null,"usage":1.5}}`, Key{}, ""},
		"a key with a limit":  {200, `{"data":{"label":"x","limit":10,"limit_remaining":7.5}}`, Key{Left: new(7.5)}, ""},
		"nothing is left":     {200, `{"data":{"limit_remaining":0}}`, Key{Left: new(0.0)}, ""},
		"a key for keys":      {200, `{"data":{"label":"x","is_management_key":true}}`, Key{Manages: true}, ""},
		"of the older name":   {200, `{"data":{"label":"x","is_provisioning_key":true}}`, Key{Manages: true}, ""},
		"a wrong key":         {401, `{"error":{"message":"User not found: sk-very-secret.","code":401}}`, Key{}, "401 Unauthorized: User not found: [key]."},
		"no such address":     {404, `not found`, Key{}, ErrNoKeyTest.Error()},
		"a wall":              {403, `forbidden`, Key{}, ErrNoKeyTest.Error()},
		"a page for all":      {200, `<html>hello</html>`, Key{}, ErrNoKeyTest.Error()},
		"another object":      {200, `{"data":[]}`, Key{}, ErrNoKeyTest.Error()},
		"an object of others": {200, `{"data":{"id":"x"}}`, Key{}, ErrNoKeyTest.Error()},
		"a redirect":          {302, ``, Key{}, ErrNoKeyTest.Error()},
		"out of order":        {503, ``, Key{}, ErrNoKeyTest.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			c := served(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/v1/key" || r.Header.Get("Authorization") != "Bearer sk-very-secret" {
					t.Errorf("asked %s %s with %q", r.Method, r.URL.Path, r.Header.Get("Authorization"))
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			got, err := c.TestKey(t.Context(), "")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if (tt.err == "") != (err == nil) || err != nil && !strings.HasSuffix(err.Error(), tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
}

// A provider that never answers is given up after the time of an attempt.
func TestModelsOfASilentProvider(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		c := fakeClient(t, fakeOptions(), func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		begun := time.Now()
		_, err := c.Models(t.Context(), "")
		if f := council.AsFailure(err); f == nil || f.Code != council.FailTimeout || time.Since(begun) != 3*time.Minute {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Models(ctx, "")
		if f := council.AsFailure(err); f == nil || f.Code != council.FailCancelled {
			t.Errorf("got %v", err)
		}
		_, err = c.Models(t.Context(), "nobody")
		if f := council.AsFailure(err); f == nil || f.Code != council.FailUnknownProvider {
			t.Errorf("got %v", err)
		}
	})
}
