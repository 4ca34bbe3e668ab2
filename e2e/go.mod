// The page in a browser, against the whole daemon. It is a module of its own so
// that a browser's protocol is no dependency of councild. go.work takes the daemon
// from the directory above, with that one's own dependencies.
module github.com/councild/councild/e2e

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.22.0
)

require github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
