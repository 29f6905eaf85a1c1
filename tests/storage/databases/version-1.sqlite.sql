-- A SQLite database of version 1, as `sqlite3 holodeck.db .dump` writes it. Never changed.
BEGIN TRANSACTION;
CREATE TABLE audit_ends (file TEXT PRIMARY KEY, seq BIGINT NOT NULL, hash TEXT NOT NULL);
INSERT INTO "audit_ends" VALUES('audit.jsonl',3,'abc');
CREATE TABLE conversation_items (
            conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            position BIGINT NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL,
            PRIMARY KEY (conversation_id, position), UNIQUE (conversation_id, id));
INSERT INTO "conversation_items" VALUES('conv_1',1,'msg_1',X'01CA35C4005B226F6E65225D');
INSERT INTO "conversation_items" VALUES('conv_1',2,'msg_2',X'01FD83FF505B2274776F225D');
CREATE TABLE conversations (
            id TEXT PRIMARY KEY, caller_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, metadata BLOB NOT NULL,
            pending_calls BLOB, leased_by TEXT, gateway_id BIGINT);
INSERT INTO "conversations" VALUES('conv_1','alice',1.0,X'016BF65C9C7B2261223A2262227D',X'019D2B2AD35B2263616C6C225D','resp_lost',7);
CREATE TABLE elicitations (
            id TEXT PRIMARY KEY, response_id TEXT NOT NULL, caller_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            expires_at DOUBLE PRECISION NOT NULL, question BLOB NOT NULL, answer BLOB, gateway_id BIGINT NOT NULL);
INSERT INTO "elicitations" VALUES('elic_1','resp_lost','alice',2.5,4000000000.0,X'0143049A1E7B226D657373616765223A2257686963683F227D',NULL,7);
CREATE TABLE idempotency_keys (
            caller_id TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, response_id TEXT NOT NULL,
            created_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (caller_id, key));
INSERT INTO "idempotency_keys" VALUES('alice','key',X'646967657374','resp_done',4000000000.0);
CREATE TABLE paused_responses (
            caller_id TEXT NOT NULL, call_id TEXT NOT NULL, response_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (caller_id, call_id, response_id));
INSERT INTO "paused_responses" VALUES('alice','call_1','resp_done',1.5);
CREATE TABLE pending_calls (
            caller_id TEXT NOT NULL, id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            digest BLOB, claimed_by TEXT, gateway_id BIGINT, PRIMARY KEY (caller_id, id));
INSERT INTO "pending_calls" VALUES('alice','call_1',1.5,X'646967657374','resp_lost',NULL);
INSERT INTO "pending_calls" VALUES('alice','call_2',1.5,X'6F74686572','resp_lost',7);
CREATE TABLE probes (id BIGINT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE response_events (
            response_id TEXT NOT NULL, first BIGINT NOT NULL, count BIGINT NOT NULL, events BLOB NOT NULL,
            PRIMARY KEY (response_id, first));
INSERT INTO "response_events" VALUES('resp_lost',0,2,X'0158531DA37B226E223A307D0A7B226E223A317D');
CREATE TABLE responses (
            id TEXT PRIMARY KEY, caller_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, status TEXT NOT NULL,
            previous_id TEXT, conversation_id TEXT, gateway_id BIGINT, queue_position BIGINT,
            cancel_requested BOOLEAN NOT NULL DEFAULT FALSE, resource BLOB NOT NULL, input_items BLOB NOT NULL,
            items BLOB NOT NULL, pending BLOB NOT NULL, events BLOB NOT NULL, trace BLOB);
INSERT INTO "responses" VALUES('resp_done','alice',1.5,'completed','resp_before','conv_1',7,NULL,0,X'01D5E2E7C67B226964223A22726573705F646F6E65227D',X'01C52ED2B65B22696E707574225D',X'015F81824C5B226974656D73225D',X'01EBDF0C5F5B2270656E64696E67225D',X'0135FD2EE17B2274797065223A226F6E65227D0A7B2274797065223A2274776F227D',X'018225926E5B227472616365225D');
INSERT INTO "responses" VALUES('resp_lost','alice',2.5,'in_progress',NULL,NULL,7,1,1,X'01A3A6BF437B7D',X'010D4CBB295B5D',X'010D4CBB295B5D',X'01A3A6BF437B7D',X'0100000000',NULL);
CREATE TABLE runs (
            id TEXT NOT NULL, caller_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, status TEXT NOT NULL,
            model TEXT NOT NULL, servers TEXT NOT NULL, tools TEXT NOT NULL, question TEXT NOT NULL,
            answer TEXT NOT NULL, details BLOB NOT NULL, PRIMARY KEY (caller_id, created_at, id));
INSERT INTO "runs" VALUES('resp_done','alice',1.5,'completed','small','
tickets
','
search

add
','How many?','Three.',X'7B227475726E73223A327D');
CREATE TABLE spending (
            caller_id TEXT NOT NULL, start BIGINT NOT NULL, source TEXT NOT NULL, amount DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (caller_id, start, source));
INSERT INTO "spending" VALUES('alice',3600,'one',0.25);
CREATE TABLE tail (id BIGINT PRIMARY KEY, number BIGINT NOT NULL);
CREATE TABLE usage_batches (
            source TEXT PRIMARY KEY, number BIGINT NOT NULL, stored_at DOUBLE PRECISION NOT NULL);
INSERT INTO "usage_batches" VALUES('one',1,1.5);
CREATE TABLE usage_counts (
            period BIGINT NOT NULL, start BIGINT NOT NULL, caller_id TEXT NOT NULL, model TEXT NOT NULL,
            server TEXT NOT NULL, tool TEXT NOT NULL, status TEXT NOT NULL,
            requests BIGINT NOT NULL, errors BIGINT NOT NULL, input_tokens BIGINT NOT NULL,
            cached_tokens BIGINT NOT NULL, cache_write_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL,
            reasoning_tokens BIGINT NOT NULL, tool_calls BIGINT NOT NULL, priced BIGINT NOT NULL,
            cost DOUBLE PRECISION NOT NULL, seconds_0 BIGINT NOT NULL, seconds_1 BIGINT NOT NULL, seconds_2 BIGINT NOT NULL, seconds_3 BIGINT NOT NULL, seconds_4 BIGINT NOT NULL, seconds_5 BIGINT NOT NULL, seconds_6 BIGINT NOT NULL, seconds_7 BIGINT NOT NULL, seconds_8 BIGINT NOT NULL, seconds_9 BIGINT NOT NULL, seconds_10 BIGINT NOT NULL, seconds_11 BIGINT NOT NULL, seconds_12 BIGINT NOT NULL, seconds_13 BIGINT NOT NULL, seconds_14 BIGINT NOT NULL, seconds_15 BIGINT NOT NULL, seconds_16 BIGINT NOT NULL, seconds_17 BIGINT NOT NULL, seconds_18 BIGINT NOT NULL, seconds_19 BIGINT NOT NULL, seconds_20 BIGINT NOT NULL, first_token_0 BIGINT NOT NULL, first_token_1 BIGINT NOT NULL, first_token_2 BIGINT NOT NULL, first_token_3 BIGINT NOT NULL, first_token_4 BIGINT NOT NULL, first_token_5 BIGINT NOT NULL, first_token_6 BIGINT NOT NULL, first_token_7 BIGINT NOT NULL, first_token_8 BIGINT NOT NULL, first_token_9 BIGINT NOT NULL, first_token_10 BIGINT NOT NULL, first_token_11 BIGINT NOT NULL, first_token_12 BIGINT NOT NULL, first_token_13 BIGINT NOT NULL, first_token_14 BIGINT NOT NULL, first_token_15 BIGINT NOT NULL, first_token_16 BIGINT NOT NULL, first_token_17 BIGINT NOT NULL, first_token_18 BIGINT NOT NULL, first_token_19 BIGINT NOT NULL, first_token_20 BIGINT NOT NULL,
            PRIMARY KEY (period, start, caller_id, model, server, tool, status));
INSERT INTO "usage_counts" VALUES(60,60,'alice','small','','','completed',1,0,20,0,0,5,0,2,1,0.25,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "usage_counts" VALUES(3600,0,'alice','small','','','completed',1,0,20,0,0,5,0,2,1,0.25,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "usage_counts" VALUES(86400,0,'alice','small','','','completed',1,0,20,0,0,5,0,2,1,0.25,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
CREATE INDEX responses_by_caller ON responses (caller_id, created_at);
CREATE INDEX responses_unfinished ON responses (status, queue_position, id, gateway_id)
            WHERE status IN ('queued', 'in_progress');
CREATE INDEX responses_unfinished_of ON responses (caller_id, queue_position, id, status)
            WHERE status IN ('queued', 'in_progress');
CREATE INDEX responses_to_cancel ON responses (gateway_id)
            WHERE cancel_requested AND status IN ('queued', 'in_progress');
CREATE INDEX conversations_by_caller ON conversations (caller_id, created_at, id);
CREATE INDEX conversation_items_by_id ON conversation_items (id);
CREATE INDEX runs_by_age ON runs (created_at, id);
CREATE INDEX runs_not_completed ON runs (status, created_at, id, caller_id) WHERE status <> 'completed';
CREATE INDEX elicitations_by_response ON elicitations (response_id);
COMMIT;
PRAGMA user_version = 1;
