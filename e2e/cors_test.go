package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// A page of another origin can call the interface if LLM_COUNCIL_CORS_ORIGINS names that
// origin, and else the browser refuses.
func TestOtherOrigins(t *testing.T) {
	const token = "a-token-of-sixteen-and-more"
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<!doctype html><title>another page</title>")
	}))
	t.Cleanup(page.Close)
	stranger := strings.Replace(page.URL, "127.0.0.1", "localhost", 1)
	url := daemon(t, map[string]string{"API_TOKENS": token, "CORS_ORIGINS": page.URL}, members()...)
	closed := daemon(t, map[string]string{"API_TOKENS": token}, members()...)
	for _, tt := range []struct{ name, origin, url, call, want string }{
		{"reading", page.URL, url, `"/v1/models", {headers}`, "200 council"},
		{"asking", page.URL, url, `"/v1/chat/completions", {method: "POST", headers, body: JSON.stringify(
			{model: "council", messages: [{role: "user", content: "Why?"}]})}`, "200 chat.completion"},
		{"an error", page.URL, url, `"/v1/models", {}`, "401 unauthorized"},
		{"from an origin that is not named", stranger, url, `"/v1/models", {headers}`, "TypeError"},
		{"without the setting", page.URL, closed, `"/v1/models", {headers}`, "TypeError"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
			defer cancel()
			if err := chromedp.Do(ctx); err != nil { // the context of the first call is that of the tab
				t.Fatal(err)
			}
			p := &tab{T: t, ctx: ctx} // whose page may ask elsewhere
			p.do(chromedp.Navigate(tt.origin))
			got := value[string](p, fmt.Sprintf(`(async () => {
				const headers = {Authorization: "Bearer %s", "Content-Type": "application/json", "X-Stainless-Lang": "js"};
				const ask = (path, options) => fetch(%q + path, options);
				try {
					const response = await ask(%s);
					const body = await response.json();
					return response.status + " " + (body.data?.[0].id ?? body.error?.code ?? body.object)
						+ (response.headers.get("X-Request-Id") ? "" : " without its id");
				} catch (error) {
					return error.name;
				}
			})()`, token, tt.url, tt.call))
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
