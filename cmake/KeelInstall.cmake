# cmake --install: programs, shared libraries, public headers under include/keel, completions, and the CMake package that
# find_package(keel) finds.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/keel)

# Libraries. Their names are keel::keel, keel::tokenizer and keel::eval outside.
target_compile_features(keel INTERFACE cxx_std_20)
install(TARGETS keel keel_tokenizer keel_eval EXPORT keel LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
set_target_properties(keel_tokenizer PROPERTIES EXPORT_NAME tokenizer)
set_target_properties(keel_eval PROPERTIES EXPORT_NAME eval)
install(EXPORT keel NAMESPACE keel:: FILE keelTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/keelConfig.cmake.in ${PROJECT_BINARY_DIR}/keelConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/keelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/keelConfig.cmake ${PROJECT_BINARY_DIR}/keelConfigVersion.cmake
        DESTINATION ${package_dir})

# Programs and libraries find the libraries beside them, wherever the prefix is moved. (apps/ installs the programs.)
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
get_property(programs DIRECTORY ${PROJECT_SOURCE_DIR}/apps PROPERTY BUILDSYSTEM_TARGETS)
set_target_properties(${programs} PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
set_target_properties(keel_tokenizer keel_eval PROPERTIES INSTALL_RPATH "$ORIGIN")

# Headers.
install(CODE "set(KEEL_SOURCE_DIR [[${PROJECT_SOURCE_DIR}]])
set(KEEL_HEADER_DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/keel\")")
install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/InstallHeaders.cmake)

# What shells and readers look for.
set(completions ${PROJECT_SOURCE_DIR}/completions)
install(DIRECTORY ${completions}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(DIRECTORY ${completions}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(DIRECTORY ${completions}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
