module penstock.test/clients

go 1.19

require (
	github.com/Azure/go-amqp v1.5.1
	github.com/klauspost/compress v1.17.4
	github.com/pierrec/lz4/v4 v4.1.21
	github.com/rabbitmq/amqp091-go v1.10.0
)
