package httpapi_test

import (
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/web"
	"github.com/google/go-cmp/cmp"
)

// The page and its files need no token. A browser may keep them until they change.
func TestPage(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens = tokens(secret) })
	types := map[string]string{
		"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8",
		"svg": "image/svg+xml",
	}
	served := 0
	err := fs.WalkDir(web.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		served++
		path := "/" + strings.TrimSuffix(name, "index.html")
		want, err := fs.ReadFile(web.Files, name)
		if err != nil {
			return err
		}
		resp, got := s.call(t, "GET", path, "")
		if resp.StatusCode != http.StatusOK || string(got) != string(want) {
			t.Errorf("%s: %s, %d bytes", path, resp.Status, len(got))
		}
		for header, want := range map[string]string{
			"Content-Type": types[name[strings.LastIndex(name, ".")+1:]], "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff",
		} {
			if got := resp.Header.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", path, header, got, want)
			}
		}
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		resp, got = s.call(t, "GET", path, "", "If-None-Match", resp.Header.Get("ETag"))
		if resp.StatusCode != http.StatusNotModified || len(got) > 0 {
			t.Errorf("%s, known already: %s, %d bytes", path, resp.Status, len(got))
		}
		return nil
	})
	if err != nil || served < 8 {
		t.Errorf("served %d files, %v", served, err)
	}
	for _, path := range []string{"/assets/", "/assets/none.js", "/assets/../web.go", "/assets/..%2findex.html", "/index.html"} {
		s.mustFail(t, http.StatusNotFound, council.CodeNotFound, "GET", path, "")
	}
}

// The page offers every category.
func TestPageHasTheCategories(t *testing.T) {
	page, err := fs.ReadFile(web.Files, "index.html")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, option := range regexp.MustCompile(`<option>(.*)</option>`).FindAllStringSubmatch(string(page), -1) {
		got = append(got, option[1])
	}
	if diff := cmp.Diff(council.Categories(), got); diff != "" {
		t.Error(diff)
	}
}
