package daemontest

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"testing"
)

// MCP sends a request to POST /mcp, as a client of a revision that declares extensions. It returns the HTTP status and
// the JSON-RPC response. The argument name is the header Mcp-Name.
func (c Caller) MCP(
	tb testing.TB, revision string, extensions []string, method, name string, params map[string]any,
) (status int, response []byte) {
	tb.Helper()
	declared := map[string]any{}
	for _, extension := range extensions {
		declared[extension] = map[string]any{}
	}
	sent := map[string]any{"_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion":    revision,
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "test", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{"extensions": declared},
	}}
	maps.Copy(sent, params)
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": sent})
	if err != nil {
		tb.Fatal(err)
	}
	status, response = c.Call(tb, http.MethodPost, "/mcp", string(body), "Accept", "application/json, text/event-stream",
		"Mcp-Protocol-Version", revision, "Mcp-Method", method, "Mcp-Name", name)
	if _, event, ok := bytes.Cut(response, []byte("data: ")); ok {
		response = event
	}
	return status, response
}
