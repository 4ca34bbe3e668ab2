// What measures councild and checks its statistics. It is a module of its own so that the reference programs are no part of
// councild. It takes councild from the directory above.
module github.com/councild/councild/lab

go 1.26.0

require (
	github.com/councild/councild v0.0.0
	github.com/sashabaranov/go-openai v1.43.0
)

require gonum.org/v1/gonum v0.17.0 // indirect

replace github.com/councild/councild => ../
