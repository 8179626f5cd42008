CREATE MACRO draw(row_number, what) AS
    (hash(seed(), row_number, what) % 1000000) / 1000000.0;
CREATE MACRO pick(row_number, what, n) AS (hash(seed(), row_number, what) % n)::BIGINT;
CREATE MACRO moment(row_number) AS
    TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_milliseconds(row_number * 10);
-- Ordered like UUIDv7: the row's number stands where the time would.
CREATE MACRO id7(row_number, kind) AS printf(
    '0197%08x-7%03x-8%03x-%012x',
    row_number // 4096, row_number % 4096, kind, pick(row_number, kind, 281474976710656)
);
CREATE MACRO uuid7(row_number, kind) AS (
    id7(row_number, kind)[1:8] || '-' || id7(row_number, kind)[9:12] || id7(row_number, kind)[13:]
);
CREATE TABLE made_tasks AS
SELECT i, code, task_id(code) AS task_id, workload_id(task_id(code)) AS workload_id
FROM (
    SELECT i, normalize(
        '"""Task ' || i || '."""' || chr(10) || 'ROWS = ' || (16 + i) || chr(10) || t.code
    ) AS code
    FROM range(tasks()) AS r(i)
    JOIN texts AS t ON t.n = i % given_texts()
) AS numbered;
CREATE VIEW made_kernels AS
SELECT
    i,
    '# ' || seed() || ':' || i || chr(10) || array_to_string(
        list_transform(
            string_split(t.code, chr(10)),
            lambda line, j: CASE
                WHEN (i + j) % 9 = 0 THEN line || '  # ' || left(md5(i || ':' || j), 8)
                ELSE line
            END
        ),
        chr(10)
    ) AS code
FROM (SELECT i, pick(i, 'text', given_texts()) AS n FROM range(kernels()) AS r(i)) AS numbered
JOIN texts AS t USING (n);
CREATE TABLE kernel_ids AS
SELECT i, kernel_id(code) AS kernel_id FROM made_kernels;
CREATE TABLE device_ids AS
SELECT sha256('device') AS device_id;
-- table tasks
SELECT task_id, code, 'generated' AS source, 'Apache-2.0' AS license FROM made_tasks
;
-- table task_labels
SELECT
    'generated' AS suite, 'v1' AS suite_revision, 'task/' || i AS name, task_id,
    1 + (i % 3)::INTEGER AS level, i::INTEGER AS problem_id, 'family' || (i % 20) AS family,
    'generated' AS source
FROM made_tasks
;
-- table splits
SELECT
    'generated' AS suite, 'family' || i AS family,
    CASE WHEN i % 5 = 4 THEN 'test' ELSE 'train' END AS split, 'generated' AS rule
FROM range(20) AS r(i)
;
-- table workloads
SELECT
    workload_id, task_id, 'default' AS name, '{}' AS axes,
    'get_inputs' AS generator
FROM made_tasks
;
-- table policies
SELECT
    'policy' || i AS policy_id, 'policy ' || i AS name, 'model' AS kind,
    ['base', 'sft', 'self-supervised', 'contrastive'][i + 1] AS stage
FROM range(4) AS r(i)
;
-- table devices
SELECT device_id, 'H200' AS name, 'cuda' AS kind, 'NVIDIA H200' AS model FROM device_ids
;
-- table runs
SELECT
    'run' || i AS run_id, 'evaluation' AS kind, 'generated' AS name, '{}' AS config,
    moment(i) AS started_at
FROM range(1) AS r(i)
;
-- table kernels
SELECT
    kernel_id, code, 'kernel.py' AS path, 'ModelNew' AS entry_point, 'generated' AS source,
    'Apache-2.0' AS license, moment(i) AS created_at
FROM made_kernels
JOIN kernel_ids USING (i)
;
-- table kernel_features
SELECT
    kernel_id, 1 AS extractor_version, true AS parsed,
    ['pytorch', 'triton', 'cuda', 'cpp'][1 + pick(i, 'language', 4)] AS language,
    pick(i, 'language', 4) IN (1, 2) AS has_device_code, 1 AS global_functions,
    0 AS triton_kernels, false AS uses_cuda_graphs, false AS uses_torch_compile,
    false AS uses_torch_jit, false AS sets_cudnn_flags, false AS uses_streams,
    list_sort(list_distinct([
        ['fusion', 'shared_memory', 'vectorized_access', 'warp_reduction', 'in_place'][
            1 + pick(i, 'technique' || j, 5)
        ] FOR j IN range(2)
    ])) AS techniques,
    2000 AS code_bytes, 60 AS code_lines,
    [pick(i, 'band' || j, 9000000000000) FOR j IN range(16)] AS minhash_bands,
    moment(i) AS created_at
FROM kernel_ids
;
-- table generations
SELECT
    uuid7(r.i, 1) AS generation_id, 'run0' AS run_id, m.task_id,
    'policy' || pick(r.i, 'policy', 4) AS policy_id, kernel_id,
    'generated' AS source, 'Apache-2.0' AS license, moment(r.i) AS created_at
FROM kernel_ids AS r
JOIN made_tasks AS m ON m.i = r.i % tasks()
;
-- table evaluations
SELECT
    uuid7(r.i, 2) AS evaluation_id, 'run0' AS run_id,
    k.kernel_id, m.task_id,
    m.workload_id, device_id, 'judge' AS evaluator,
    1 AS evaluator_version,
    CASE WHEN draw(r.i % kernels(), 'status') < 0.7 THEN 'correct' ELSE 'incorrect' END AS status,
    CASE WHEN draw(r.i % kernels(), 'status') < 0.7 THEN NULL ELSE 'incorrect_numerical' END
        AS reason,
    [r.i, r.i + 1] AS seeds, 0.01 AS wall_s, moment(r.i) AS created_at
FROM range(part_begin(), part_end()) AS r(i)
JOIN kernel_ids AS k ON k.i = r.i % kernels()
JOIN made_tasks AS m ON m.i = (r.i % kernels()) % tasks()
CROSS JOIN device_ids
;
-- table timings
SELECT
    uuid7(2 * r.i + a, 3) AS timing_id, uuid7(r.i, 2) AS evaluation_id,
    uuid7(r.i, 4) AS session_id, ['kernel', 'eager'][a + 1] AS arm,
    k.kernel_id, m.task_id,
    m.workload_id, device_id,
    list_transform(
        range(20),
        lambda j: (
            CASE WHEN a = 1 THEN 1.0 ELSE exp(1.2 - 2.4 * draw(r.i, 'speed')) END
            * (1 + 0.02 * draw(r.i * 40 + a * 20 + j, 'noise'))
        )::FLOAT
    ) AS samples_ms,
    range(20)::INTEGER[] AS blocks, 1 AS inner_loops, 'cold' AS cache, false AS noisy,
    moment(r.i) AS created_at
FROM range(part_begin(), part_end()) AS r(i)
JOIN kernel_ids AS k ON k.i = r.i % kernels()
JOIN made_tasks AS m ON m.i = (r.i % kernels()) % tasks()
CROSS JOIN device_ids
CROSS JOIN range(2) AS arms(a)
WHERE draw(r.i % kernels(), 'status') < 0.7
;
-- table findings
SELECT
    sha256('finding' || i) AS finding_id, kernel_id,
    'generated' AS detector, 1 AS detector_version, 'result_caching' AS class,
    moment(i) AS created_at
FROM kernel_ids
WHERE i % 1000 = 0
;
-- table standings
SELECT
    sha256('standing' || i) AS standing_id, sha256('finding' || i) AS finding_id,
    'confirmed' AS decision, 'benchmark' AS author, 'generated' AS why, moment(i) AS created_at
FROM range(0, kernels(), 1000) AS r(i)
