// What measures councild and checks its statistics. It is a module of its own so that the reference programs are no part of
// councild. It takes councild from the directory above.
module github.com/councild/councild/lab

go 1.26.0

require (
	github.com/councild/councild v0.0.0
	github.com/sashabaranov/go-openai v1.43.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	golang.org/x/text v0.43.0 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
)

replace github.com/councild/councild => ../
