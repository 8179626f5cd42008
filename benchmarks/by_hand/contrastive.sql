-- What an expert would write over the Parquet files for: the texts of a contrastive batch.
-- One statement: scores of correct kernels, two buckets drawn per prompt, a kernel out of each, and
-- the texts. The draws are the pipeline's, so that both pick the same kernels.
WITH held AS (
    SELECT DISTINCT kernel_id FROM findings JOIN (
        SELECT finding_id, arg_max(decision, created_at) AS decision FROM standings GROUP BY ALL
    ) USING (finding_id)
    WHERE decision = 'confirmed'
),
asked AS (
    SELECT task_id FROM task_labels JOIN splits USING (suite, family)
    GROUP BY task_id HAVING bool_and(split = 'train')
),
tests AS (
    SELECT DISTINCT kernel_id FROM generations WHERE task_id NOT IN (FROM asked)
),
newest AS (
    SELECT kernel_id, task_id, workload_id, device_id, evaluator, max(evaluator_version) AS version
    FROM evaluations WHERE status <> 'evaluator_error' GROUP BY ALL
),
judged AS (
    SELECT kernel_id, task_id, workload_id, device_id
    FROM evaluations JOIN newest USING (kernel_id, task_id, workload_id, device_id, evaluator)
    WHERE evaluator_version = version AND status <> 'evaluator_error'
    GROUP BY ALL HAVING bool_and(status = 'correct')
),
sessions AS (
    SELECT
        k.session_id, k.task_id, k.kernel_id, k.workload_id, k.device_id, k.created_at,
        list_sort([b.samples_ms[i]::DOUBLE / k.samples_ms[i] FOR i IN range(1, len(k.samples_ms) + 1)])
            AS ratios
    FROM timings AS k
    JOIN timings AS b ON b.session_id = k.session_id AND b.cache = k.cache AND b.arm = 'eager'
    WHERE k.arm = 'kernel' AND NOT coalesce(k.disturbed, k.noisy)
),
eligible AS (
    SELECT
        task_id, kernel_id,
        sqrt(ratios[(len(ratios) + 1) // 2] * ratios[len(ratios) // 2 + 1]) AS score
    FROM sessions JOIN judged USING (kernel_id, task_id, workload_id, device_id)
    WHERE task_id IN (FROM asked) AND kernel_id NOT IN (FROM held) AND kernel_id NOT IN (FROM tests)
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id, task_id, workload_id, device_id ORDER BY created_at DESC, session_id DESC
    ) = 1
),
placed AS (
    SELECT
        * EXCLUDE (wide),
        CASE
            WHEN $exemplars > 1 AND min(wide) OVER here = max(wide) OVER here
                THEN dense_rank() OVER (PARTITION BY task_id ORDER BY score)
            ELSE wide
        END AS bucket
    FROM (SELECT *, floor(score / $bucket_width)::BIGINT AS wide FROM eligible)
    WINDOW here AS (PARTITION BY task_id)
),
buckets AS (
    SELECT
        task_id, bucket, count(*) AS kernels,
        CAST(sum(CAST(score AS DECIMAL(18, 6))) AS DOUBLE) / count(*) AS mean_score
    FROM placed GROUP BY ALL
),
centres AS (
    SELECT
        task_id, list(mean_score ORDER BY bucket) AS means, list_avg(means) AS mu,
        list_stddev_pop(means) AS sigma
    FROM buckets GROUP BY task_id
),
draws AS (
    SELECT * FROM (
        SELECT task_id, unnest(range(CAST(ceil($limit / (SELECT count(*) FROM centres)) AS BIGINT))) AS draw
        FROM centres
    )
    ORDER BY draw, md5_number_lower(concat_ws(':', $seed, 'task', task_id)), task_id
    LIMIT $limit
),
keyed AS (
    SELECT
        task_id, draw, bucket, kernels, (mean_score - mu) / nullif(sigma, 0) / $temperature - ln(-ln((
            (md5_number_lower(concat_ws(':', $seed, 'bucket', task_id, draw, bucket)) >> 12)::DOUBLE + 0.5
        ) / 4503599627370496)) AS key
    FROM draws JOIN centres USING (task_id) JOIN buckets USING (task_id)
),
chosen AS (
    SELECT
        task_id, draw, won.bucket AS bucket,
        (
            md5_number_lower(concat_ws(':', $seed, 'kernel', task_id, draw, won.bucket)) % won.kernels
        )::BIGINT + 1 AS place
    FROM (
        SELECT
            task_id, draw,
            unnest(max({'key': key, 'bucket': bucket, 'kernels': kernels}, $exemplars)) AS won
        FROM keyed GROUP BY ALL
    )
),
numbered AS (
    SELECT *, row_number() OVER (PARTITION BY task_id, bucket ORDER BY kernel_id) AS place
    FROM placed SEMI JOIN chosen USING (task_id, bucket)
),
shown AS (
    SELECT task_id, draw, kernel_id, score
    FROM chosen JOIN numbered USING (task_id, bucket, place)
)
SELECT
    shown.task_id, shown.draw, any_value(tasks.code) AS task_code,
    list(
        {'kernel_id': kernel_id, 'score': round(score, 2), 'code': kernels.code}
        ORDER BY md5_number_lower(concat_ws(':', $seed, 'shown', task_id, draw, kernel_id))
    ) AS exemplars
FROM shown JOIN kernels USING (kernel_id) JOIN tasks USING (task_id)
GROUP BY shown.task_id, shown.draw
