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
	"github.com/councild/councild/internal/race"
	"github.com/google/go-cmp/cmp"
)

func TestModels(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
		want   []string
		code   council.FailureCode
	}{
		"a list":              {200, `{"object":"list","data":[{"id":"a"},{"id":"b","x":1},{}]}`, []string{"a", "b"}, ""},
		"a bare list":         {200, `[{"id":"a"}]`, []string{"a"}, ""},
		"an empty list":       {200, `{"data":[]}`, []string{}, ""},
		"a page":              {200, `<html>hello</html>`, nil, council.FailBadResponse},
		"another object":      {200, `{"status":"ok"}`, nil, council.FailBadResponse},
		"null":                {200, `null`, nil, council.FailBadResponse},
		"a number":            {200, `{"data":7}`, nil, council.FailBadResponse},
		"nothing":             {200, ``, nil, council.FailBadResponse},
		"control characters":  {200, `{"data":[{"id":"\u001b[2J"}]}`, []string{"\x1b[2J"}, ""},
		"deep nesting":        {200, strings.Repeat("[", 100_000), nil, council.FailBadResponse},
		"more than the limit": {200, `{"data":[{"id":"` + strings.Repeat("x", 1<<20) + `"}]}`, nil, council.FailTooLarge},
		"a wrong key":         {401, `{"error":{"message":"no key sk-very-secret"}}`, nil, council.FailUnauthorized},
		"no list":             {404, `not found`, nil, council.FailUnknownModel},
		"a redirect":          {302, ``, nil, council.FailRejected},
		"out of order":        {503, ``, nil, council.FailUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer sk-very-secret" {
					t.Errorf("asked %s %s with %q", r.Method, r.URL.Path, r.Header.Get("Authorization"))
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer server.Close()
			o := fakeOptions()
			o.Providers[0].BaseURL, o.Providers[0].APIKey = server.URL+"/v1", "sk-very-secret"
			c, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
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
