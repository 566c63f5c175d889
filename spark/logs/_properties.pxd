"""For kernels of the same folder: the columns of the table, and what a properties block says about them."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    PROTOCOL
    VHOST
    ADDRESS
    ROUTING_KEY
    PARTITION
    OFFSET
    APPEND_TIME
    EVENT_TIME
    EXPIRES_AT
    PRIORITY
    QOS
    PERSISTENT
    RETAIN
    FEEDS
    MESSAGE_ID
    CORRELATION_ID
    REPLY_TO
    CONTENT_TYPE
    CONTENT_ENCODING
    TYPE
    APP_ID
    USER_ID
    HEADERS
    PAYLOAD_SIZE
    PAYLOAD
    COLUMNS
    HEADER_NAME = COLUMNS            # the columns inside a list of headers
    HEADER_TYPE
    HEADER_VALUE
    ALL_COLUMNS

cdef struct Slice:
    const uint8_t* p                 # NULL: absent
    size_t n

cdef struct Properties:
    Slice[USER_ID + 1] texts         # by column, from MESSAGE_ID on
    Slice headers                    # AMQP: the table without its size; MQTT: see `pairs`
    bint pairs                       # the block has MQTT user properties
    uint64_t timestamp               # seconds; 0: none


cdef void read_amqp(const uint8_t* p, size_t n, Properties* found) noexcept nogil
cdef void read_mqtt(const uint8_t* p, size_t n, Properties* found) noexcept nogil
cdef size_t mqtt_property(const uint8_t* p, size_t n, Slice* first, Slice* second) noexcept nogil
cdef const char* type_name(uint8_t octet) noexcept nogil
cdef size_t value_size(uint8_t octet, const uint8_t* p, size_t n) noexcept nogil
