# fish completion of keel-analyze; made by: keel-analyze --completions fish
function __keel_analyze_settings
  if string match -q '*=*' -- (string replace -r '^--[a-z-]+=' '' -- (commandline -ct))
    printf '%s\n' model.tie_word_embeddings=true model.tie_word_embeddings=false model.residual_scheme=keel model.residual_scheme=keel_v1 model.residual_scheme=pre model.residual_scheme=post model.final_norm=true model.final_norm=false model.init=scheme model.init=plain model.hidden_act=silu model.attention_bias=true model.attention_bias=false model.qkv_bias=true model.qkv_bias=false model.mlp_bias=true model.mlp_bias=false model.qk_norm=true model.qk_norm=false data.format=auto data.format=keel data.format=megatron data.format=llmc data.format=nanogpt data.shuffle=true data.shuffle=false data.document_mask=true data.document_mask=false data.loss_mask=true data.loss_mask=false train.micro_batch_sequences=auto train.recompute=none train.stop_on_divergence=true train.stop_on_divergence=false train.precision=fp32 train.stream_dtype=fp32 train.reproducible=threads optimizer.name=adamw optimizer.decay_on=matrices optimizer.decay_on=all optimizer.clip=off optimizer.parameterization=standard schedule.name=cosine schedule.name=constant validate.unigram=true validate.unigram=false
  else
    printf '%s\n' model.vocab_size= model.hidden_size= model.intermediate_size= model.num_hidden_layers= model.num_attention_heads= model.num_key_value_heads= model.head_dim= model.max_position_embeddings= model.rms_norm_eps= model.rope_theta= model.initializer_range= model.tie_word_embeddings= model.residual_scheme= model.residual_alpha= model.final_norm= model.init= model.hidden_act= model.attention_bias= model.qkv_bias= model.mlp_bias= model.qk_norm= model.sliding_window= data.path= data.val_path= data.format= data.sequence_length= data.shuffle= data.document_mask= data.mixture= data.loss_mask= data.eod_id= train.steps= train.tokens= train.flops= train.tokens_per_parameter= train.batch_tokens= train.batch_sequences= train.micro_batch_sequences= train.recompute= train.log_every= train.seed= train.stop_on_divergence= train.time_limit= train.memory_limit= train.precision= train.stream_dtype= train.reproducible= optimizer.name= optimizer.learning_rate= optimizer.betas= optimizer.eps= optimizer.weight_decay= optimizer.decay_on= optimizer.clip= optimizer.parameterization= optimizer.classes.embedding.learning_rate= optimizer.classes.embedding.weight_decay= optimizer.classes.embedding.eps= optimizer.classes.attention.learning_rate= optimizer.classes.attention.weight_decay= optimizer.classes.attention.eps= optimizer.classes.mlp.learning_rate= optimizer.classes.mlp.weight_decay= optimizer.classes.mlp.eps= optimizer.classes.norm.learning_rate= optimizer.classes.norm.weight_decay= optimizer.classes.norm.eps= optimizer.classes.head.learning_rate= optimizer.classes.head.weight_decay= optimizer.classes.head.eps= optimizer.classes.scalar.learning_rate= optimizer.classes.scalar.weight_decay= optimizer.classes.scalar.eps= schedule.name= schedule.warmup_steps= schedule.final_learning_rate= checkpoint.every_steps= checkpoint.every_minutes= checkpoint.keep_last= checkpoint.keep_every= checkpoint.at= validate.every_steps= validate.tokens= validate.unigram= validate.sample.prompts= validate.sample.every_steps= validate.sample.tokens= validate.sample.temperature= validate.sample.top_k= validate.sample.top_p=
  end
end
complete -c keel-analyze -n 'not __fish_seen_subcommand_from wiring' -f -a wiring -d 'The table of every sublayer'\''s norms and scales.'
complete -c keel-analyze -n '__fish_seen_subcommand_from wiring' -l config -r -F -d 'Settings as JSON, from a file, a recipe or - for stdin.'
complete -c keel-analyze -n '__fish_seen_subcommand_from wiring' -l set -r -f -a '(__keel_analyze_settings)' -d 'Set one key of the config, as in --set train.steps=100.'
complete -c keel-analyze -n '__fish_seen_subcommand_from wiring' -l print-config -d 'Print the resolved config as JSON and stop.'
complete -c keel-analyze -n '__fish_seen_subcommand_from wiring' -l origins -d 'With --print-config: one line a key, with where its value came from.'
complete -c keel-analyze -n '__fish_seen_subcommand_from wiring' -l scheme -r -f -a 'keel keel_v1 pre post' -d 'Residual scheme.'
complete -c keel-analyze -n '__fish_seen_subcommand_from wiring' -l blocks -r -d 'Blocks of the model; sublayers are twice as many.'
complete -c keel-analyze -n '__fish_seen_subcommand_from wiring' -l alpha -r -d 'Skip scale in place of the scheme'\''s own.'
complete -c keel-analyze -n '__fish_seen_subcommand_from wiring' -l list-schemes -d 'List the residual schemes.'
complete -c keel-analyze -n '__fish_seen_subcommand_from wiring' -l out -r -F -d 'Where the report goes, with the table on stdout; - is stdout. By default stdout, where a terminal gets the table instead.'
complete -c keel-analyze -n '__fish_seen_subcommand_from wiring' -l json -d 'Print the report even on a terminal.'
complete -c keel-analyze -l force -d 'Replace output that exists.'
complete -c keel-analyze -l resume -d 'Continue what was begun.'
complete -c keel-analyze -l report -r -F -d 'Also write the JSON report to this file (- = stdout).'
complete -c keel-analyze -l seed -r -d 'Seed of all random choices.'
complete -c keel-analyze -l threads -r -d 'Threads to use; 0 = the cores this process may use (affinity, cgroup, SLURM_CPUS_PER_TASK).'
complete -c keel-analyze -l progress -r -f -a 'auto plain json none' -d 'How to show progress on stderr; auto = a bar on a terminal, else plain lines.'
complete -c keel-analyze -s h -d 'A short help with examples.'
complete -c keel-analyze -l help -d 'All options, with defaults and units.'
complete -c keel-analyze -l version -d 'The version.'
complete -c keel-analyze -l quiet -d 'Only errors on stderr, no progress.'
complete -c keel-analyze -l log-level -r -f -a 'debug info warning error off' -d 'Least important message to show.'
complete -c keel-analyze -l completions -r -f -a 'bash zsh fish' -d 'Print a completion script for the shell.'
