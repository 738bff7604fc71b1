# fish completion of keel-train; made by: keel-train --completions fish
function __keel_train_settings
  if string match -q '*=*' -- (string replace -r '^--[a-z-]+=' '' -- (commandline -ct))
    printf '%s\n' model.tie_word_embeddings=true model.tie_word_embeddings=false model.residual_scheme=keel model.residual_scheme=keel_v1 model.residual_scheme=keel_attempt1 model.residual_scheme=keel_attempt2 model.residual_scheme=keel_attempt3 model.residual_scheme=pre model.residual_scheme=post model.residual_scheme=deepnorm model.residual_scheme=hybrid model.residual_scheme=hybrid_star model.residual_scheme=mix model.residual_scheme=admin model.residual_scheme=lns model.residual_scheme=sandwich model.residual_scheme=olmo2 model.residual_scheme=rezero model.residual_scheme=layerscale model.learnable_alpha=true model.learnable_alpha=false model.admin_frozen=true model.admin_frozen=false model.final_norm=true model.final_norm=false model.norm_type=rms model.norm_type=ln model.init=scheme model.init=plain model.hidden_act=silu model.attention_bias=true model.attention_bias=false model.qkv_bias=true model.qkv_bias=false model.mlp_bias=true model.mlp_bias=false model.qk_norm=true model.qk_norm=false data.format=auto data.format=keel data.format=megatron data.format=llmc data.format=nanogpt data.shuffle=true data.shuffle=false data.document_mask=true data.document_mask=false data.loss_mask=true data.loss_mask=false train.micro_batch_sequences=auto train.stop_on_divergence=true train.stop_on_divergence=false train.precision=fp32 train.precision=bf16 train.stream_dtype=fp32 train.stream_dtype=bf16 train.activations=fp32 train.activations=bf16 train.reproducible=threads optimizer.name=adamw optimizer.decay_on=matrices optimizer.decay_on=all optimizer.clip=off optimizer.parameterization=standard schedule.name=cosine schedule.name=constant validate.unigram=true validate.unigram=false
  else
    printf '%s\n' model.vocab_size= model.hidden_size= model.intermediate_size= model.num_hidden_layers= model.num_attention_heads= model.num_key_value_heads= model.head_dim= model.max_position_embeddings= model.rms_norm_eps= model.rope_theta= model.initializer_range= model.tie_word_embeddings= model.residual_scheme= model.residual_alpha= model.learnable_alpha= model.mix_fraction= model.admin_frozen= model.final_norm= model.norm_type= model.init= model.layerscale_init= model.hidden_act= model.attention_bias= model.qkv_bias= model.mlp_bias= model.qk_norm= model.sliding_window= data.path= data.val_path= data.format= data.sequence_length= data.shuffle= data.document_mask= data.mixture= data.loss_mask= data.eod_id= train.steps= train.tokens= train.flops= train.tokens_per_parameter= train.batch_tokens= train.batch_sequences= train.micro_batch_sequences= train.recompute= train.log_every= train.profile_every= train.seed= train.stop_on_divergence= train.time_limit= train.memory_limit= train.precision= train.stream_dtype= train.activations= train.reproducible= optimizer.name= optimizer.learning_rate= optimizer.betas= optimizer.eps= optimizer.weight_decay= optimizer.decay_on= optimizer.clip= optimizer.parameterization= optimizer.classes.embedding.learning_rate= optimizer.classes.embedding.weight_decay= optimizer.classes.embedding.eps= optimizer.classes.attention.learning_rate= optimizer.classes.attention.weight_decay= optimizer.classes.attention.eps= optimizer.classes.mlp.learning_rate= optimizer.classes.mlp.weight_decay= optimizer.classes.mlp.eps= optimizer.classes.norm.learning_rate= optimizer.classes.norm.weight_decay= optimizer.classes.norm.eps= optimizer.classes.head.learning_rate= optimizer.classes.head.weight_decay= optimizer.classes.head.eps= optimizer.classes.scalar.learning_rate= optimizer.classes.scalar.weight_decay= optimizer.classes.scalar.eps= schedule.name= schedule.warmup_steps= schedule.final_learning_rate= checkpoint.every_steps= checkpoint.every_minutes= checkpoint.keep_last= checkpoint.keep_every= checkpoint.at= validate.every_steps= validate.tokens= validate.unigram= validate.sample.prompts= validate.sample.every_steps= validate.sample.tokens= validate.sample.temperature= validate.sample.top_k= validate.sample.top_p=
  end
end
complete -c keel-train -l config -r -F -d 'Settings as JSON, from a file, a recipe or - for stdin.'
complete -c keel-train -l set -r -f -a '(__keel_train_settings)' -d 'Set one key of the config, as in --set train.steps=100.'
complete -c keel-train -l print-config -d 'Print the resolved config as JSON and stop.'
complete -c keel-train -l origins -d 'With --print-config: one line a key, with where its value came from.'
complete -c keel-train -l data -r -f -a '(__fish_complete_directories)' -d 'Training data: a keel-tokenize directory, a Megatron prefix, llm.c or nanoGPT shards; relative to the current folder, in a config file too.'
complete -c keel-train -l val-data -r -f -a '(__fish_complete_directories)' -d 'Validation data, likewise; by default the val shards of data.path.'
complete -c keel-train -l data-format -r -f -a 'auto keel megatron llmc nanogpt' -d 'Format of the data where its content can'\''t tell.'
complete -c keel-train -l out -r -f -a '(__fish_complete_directories)' -d 'Run directory to write.'
complete -c keel-train -l init -r -f -a '(__fish_complete_directories)' -d 'Start from the weights, and nothing else, of this model folder, checkpoint or run'\''s newest checkpoint.'
complete -c keel-train -l steps -r -d 'Length of the run (or tokens, flops, tokens_per_parameter).'
complete -c keel-train -l resume -d 'Continue what was begun.'
complete -c keel-train -l override -r -f -a '(__keel_train_settings)' -d 'With --resume: change a setting from here on; recorded in run.json.'
complete -c keel-train -l force -d 'Replace output that exists.'
complete -c keel-train -l plan -d 'Print parameters, memory, FLOPs and an estimate of the time; train nothing.'
complete -c keel-train -l plan-device -r -f -a 'cpu a100-40 a100-80 h100 h200 b200 l4 l40s rtx4090 rtx5090' -d 'With --plan: plan for such a GPU by its data sheet, or for this machine'\''s cpu.'
complete -c keel-train -l profile -d 'Train for a few steps, keep nothing, and print what each operation takes, beside what this machine could do.'
complete -c keel-train -l profile-steps -r -d 'With --profile: time so many steps, after one to warm up.'
complete -c keel-train -l doctor -d 'Print what this machine has and what would be slow.'
complete -c keel-train -l list-schemes -d 'List the residual schemes.'
complete -c keel-train -l json -d 'Print listings as JSON.'
complete -c keel-train -l report -r -F -d 'Also write the JSON report to this file (- = stdout).'
complete -c keel-train -l seed -r -d 'Seed of all random choices.'
complete -c keel-train -l threads -r -d 'Threads to use; 0 = the cores this process may use (affinity, cgroup, SLURM_CPUS_PER_TASK).'
complete -c keel-train -l device -r -f -a 'cpu cuda cuda-emulated' -d 'Where to compute; by default CUDA if usable, else the CPU. cuda-emulated runs CUDA'\''s code on the CPU, for tests.'
complete -c keel-train -l deterministic -d 'Same bits in every run on the same machine, where that costs speed.'
complete -c keel-train -l progress -r -f -a 'auto plain json none' -d 'How to show progress on stderr; auto = a bar on a terminal, else plain lines.'
complete -c keel-train -s h -d 'A short help with examples.'
complete -c keel-train -l help -d 'All options, with defaults and units.'
complete -c keel-train -l version -d 'The version.'
complete -c keel-train -l quiet -d 'Only errors on stderr, no progress.'
complete -c keel-train -l log-level -r -f -a 'debug info warning error off' -d 'Least important message to show.'
complete -c keel-train -l completions -r -f -a 'bash zsh fish' -d 'Print a completion script for the shell.'
