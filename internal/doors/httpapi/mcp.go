package httpapi

import (
	"bytes"
	"io"
	"net/http"
)

// mcp is POST /mcp, the Model Context Protocol over streamable HTTP. Options.MCP checks and answers the messages.
func (a *API) mcp(w http.ResponseWriter, r *http.Request) error {
	if a.o.MCP == nil {
		return nothing(r, "this daemon runs inside a command")
	}
	body, release, err := a.readBody(w, r)
	if err != nil {
		return err
	}
	release() // The call keeps its body until it ends, so the body counts as memory from here on.
	if err := a.keep(r, mcpCall+mcpCopies*len(body)); err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	a.o.MCP.ServeHTTP(w, r)
	return nil
}
